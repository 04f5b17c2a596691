"""A calibration, its prediction and the live runs, on brokers of their own."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster, some_arrivals
from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file
from headrace.fidelity import live_run as fidelity_live
from headrace.fidelity.certificate_store import stale, stored_certificates
from headrace.fidelity.fidelity_run import certificate_request, certify
from headrace.simulation.world_file import read, world_path

pytestmark = [pytest.mark.kafka]

FAST = {"fast": {"replicas": {"detect/small": 1, "read/small": 1}}}


@pytest.mark.slow
def test_a_prediction_is_stored_before_live_runs_judge_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fidelity_live, "WARM_UP_S", 0.5)
    path, arrivals = a_cluster(tmp_path, policies=FAST), some_arrivals(tmp_path, 20.0, 6.0)
    rate = ["--rate", "20", "--rate", "30", "--seconds", "3s", "--passes", "1"]
    assert run(["calibrate", str(path), *rate, "--dilate", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    file, world = read_pipeline_file(path), read(world_path(path))
    assert [phase["rate_qps"] for phase in document["phases"]] == [10.0, 15.0]
    assert world.world.rates_qps == (10.0, 15.0)
    assert all(phase.ways_in for phase in world.world.phases)
    wish = certificate_request(
        file,
        arrivals,
        policy="fast",
        devices=3,
        dilate=2.0,
        until_s=3.0,
        simulations=2,
        world=str(world_path(path)),  # also if other work has begun since it was made
    )
    certificate, _ = certify(replace(wish, repeats=1))
    (kept,) = stored_certificates(path)
    assert (kept.certificate, kept.genuine) == (certificate, True)
    assert certificate.predicted_at < certificate.live_started_at
    assert certificate.world is not None
    assert certificate.world["date"] == world.date
    values = {m.name: (m.predicted, m.live) for m in certificate.metrics}
    assert values["devices_mean"] == (2.0, 2.0)
    it = certificate.conditions
    assert (it.policy, it.dilate, it.warm_up_s, it.devices) == ("fast", 2.0, 0.0, {"emulated": 3})
    assert it.queries == 60
    assert None not in (world.look, it.look)
    assert {"hops", "ways in", "ways out"} <= {each.what for each in certificate.drift}
    path.write_text(path.read_text() + "\n")
    assert stale(certificate, read_pipeline_file(path)) == ("pipeline.yaml",)
