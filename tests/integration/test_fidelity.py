"""``headrace fidelity``: a live run in slower time beside its simulation."""

import json
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster, some_arrivals
from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file
from headrace.fidelity import live_run as fidelity_live
from headrace.fidelity.certificate import Certificate
from headrace.fidelity.fidelity_run import stale, stored

pytestmark = [pytest.mark.kafka, pytest.mark.alone]

FAST = {"fast": {"replicas": {"detect/small": 1, "read/small": 1}}}


def test_arrivals_run_live_and_simulated_and_the_certificate_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fidelity_live, "WARM_UP_S", 0.5)
    path, arrivals = a_cluster(tmp_path, policies=FAST), some_arrivals(tmp_path, 20.0, 6.0)
    command = ["fidelity", str(path), "--arrivals", str(arrivals), "--policy", "fast"]
    assert run([*command, "--dilate", "2", "--warm-up", "1s", "--until", "4s", "--json"]) == 0
    certificate = Certificate.from_json(json.loads(capsys.readouterr().out))
    file = read_pipeline_file(path)
    assert stored(path) == certificate
    assert stale(certificate, file) == ()
    metrics = {metric.name: (metric.live, metric.simulated) for metric in certificate.metrics}
    assert metrics["queries"] == (60, 60)  # 80 without the second of warm-up
    assert metrics["devices_mean"] == (2.0, 2.0)
    it = certificate.conditions
    assert (it.policy, it.dilate, it.warm_up_s, it.devices) == ("fast", 2.0, 1.0, {"emulated": 4})
    assert "lost" not in {name.removeprefix("drops/") for name in metrics}
    path.write_text(path.read_text() + "\n")
    assert stale(certificate, read_pipeline_file(path)) == ("pipeline.yaml",)
