"""``headrace fidelity`` and ``calibrate``: impossible requests are refused before anything runs."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster, some_arrivals
from headrace.cli.fidelity import print_certificate
from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file
from headrace.errors import BAD_INPUT, UNSUCCESSFUL, CalibrationError
from headrace.fidelity.calibration_run import CalibrationRequest, rates_in_turn, rates_of
from headrace.fidelity.certificate_store import keep_prediction, store_certificate
from headrace.fidelity.fidelity_run import (
    LiveRun,
    certificate_request,
    certified,
    changed_machine,
    drawn_arrivals,
    predict,
)
from headrace.machine_look import MachineLook
from headrace.results.figures import Figures
from headrace.simulation.world_file import chosen_world, store, world_path
from streams.simulated.world import Phase
from tests.typed_files import a_typed_file
from tests.unit.headrace.fidelity.test_certificate import a_certificate
from tests.unit.headrace.simulation.test_world_file import NOW, a_calibration


def said(
    capsys: pytest.CaptureFixture[str], folder: Path, *options: str, **changes: object
) -> tuple[int, str]:
    path, times = a_cluster(folder, **changes), some_arrivals(folder, 20.0, 4.0)
    code = run(["fidelity", str(path), "--arrivals", str(times), *options])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--policy", "best", "there is no policy 'best'"),
        ("--warm-up", "9s", "shorten --warm-up"),  # nothing would be left of the run
        ("--repeats", "2", "3"),  # fewer certify nothing
    ],
)
def test_invalid_options_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, words: str
) -> None:
    code, error = said(capsys, tmp_path, option, value)
    assert (code, words in error) == (BAD_INPUT, True)


def test_real_devices_cannot_be_dilated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = {"devices": {"cuda:0": 4}}
    code, error = said(capsys, tmp_path, "--dilate", "4", cluster=cluster)
    assert (code, "leave --dilate out" in error) == (UNSUCCESSFUL, True)


def test_the_history_needs_no_arrivals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = a_cluster(tmp_path)
    assert run(["fidelity", str(path)]) == BAD_INPUT
    assert "--arrivals, or --history" in capsys.readouterr().err
    assert run(["fidelity", str(path), "--history"]) == 0
    assert "no certificate" in capsys.readouterr().out
    keep_prediction(path, "1", {})
    store_certificate(path, "1", a_certificate(p50_ms=150.0))
    assert run(["fidelity", str(path), "--history", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["prediction"], row["certificate"]["met"]) == ("1", False)


def test_a_prediction_follows_from_its_request_alone(tmp_path: Path) -> None:
    """Devices and policy differ from the calibration; equal inputs give equal figures."""
    file = read_pipeline_file(a_cluster(tmp_path))
    store(a_calibration(file), world_path(file.path))
    times = some_arrivals(tmp_path, 20.0, 4.0)

    def made() -> dict[str, object]:
        wish = certificate_request(
            file, times, policy="fast", devices=2, world=str(world_path(file.path)), simulations=2
        )
        it = predict(wish, drawn_arrivals(wish))
        return {**it.as_json(), "predicted_at": ""}

    first = made()
    assert first == made()
    assert first["world"] == {
        "path": "pipeline.world.json", "sha256": first["world"]["sha256"],  # type: ignore[index]
        "date": NOW.isoformat(),
    }  # fmt: skip
    metrics = {each["name"]: each["predicted"] for each in first["metrics"]}  # type: ignore[index, attr-defined]
    assert (metrics["devices_mean"], metrics["violation"]) == (2.0, 0.0)
    assert set(first["nulls"]) == {"calibration", "M/D/c"}  # type: ignore[call-overload]


@pytest.mark.parametrize(("slower", "code"), [(1.0, 0), (1.5, UNSUCCESSFUL)])
def test_miss_exits_1_and_prints_the_judged_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], slower: float, code: int
) -> None:
    """Some live runs match the prediction; in others queries took half as long again."""
    file = read_pipeline_file(a_cluster(tmp_path))
    wish = certificate_request(
        file, some_arrivals(tmp_path, 20.0, 4.0), policy="fast", simulations=2
    )
    prediction = predict(wish, drawn_arrivals(wish))
    means = {metric.name: metric.predicted for metric in prediction.metrics}
    figures = Figures(queries=80, **means | {"p50_ms": slower * (means["p50_ms"] or 0.0)})  # type: ignore[arg-type]
    live = [
        LiveRun(
            figures=figures, conditional=figures, host_cpu_share=0.4, behind_s=0.001,
            phase=Phase(rate_qps=20.0, seconds=4.0), slowest=[{"at_s": 1.0, "ms": 500.0}],
        )
    ] * 3  # fmt: skip
    found = certified(prediction, "abc", prediction.at + timedelta(seconds=1), live, None)
    assert print_certificate(found, as_json=True) == code
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(json.dumps(found.as_json()))
    assert found.as_stored()["slowest"] == [[{"at_s": 1.0, "ms": 500.0}]] * 3
    verdicts = {each["name"]: each["verdict"] for each in told["metrics"]}
    assert (told["met"], verdicts["p50_ms"] == "missed") == (code == 0, code == UNSUCCESSFUL)
    assert (told["sha256"], told["repeats"]) == ("abc", 3)
    assert told["predicted_at"] < told["live_started_at"]
    assert print_certificate(found, as_json=False) == code
    assert ("MISSED" in capsys.readouterr().out) is (code == UNSUCCESSFUL)


def test_a_calibration_is_refused_before_the_runs_if_the_machine_has_changed_since(
    tmp_path: Path,
) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    then, now = MachineLook(work_s=0.002, others=0.0), MachineLook(work_s=0.003, others=0.5)
    store(replace(a_calibration(file), look=then, date=datetime.now(UTC).isoformat()),
          world_path(file.path))  # fmt: skip
    chosen = chosen_world(file, None)
    assert changed_machine(chosen, then) == ()
    with pytest.raises(CalibrationError, match=r"1\.50 times the CPU time.*calibrate` again"):
        changed_machine(chosen, now)


def test_a_calibration_that_the_user_names_is_used_on_a_changed_machine_and_it_is_said(
    tmp_path: Path,
) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    then, now = MachineLook(work_s=0.002, others=0.0), MachineLook(work_s=0.002, others=0.5)
    store(replace(a_calibration(file), look=then), world_path(file.path))
    (told,) = changed_machine(chosen_world(file, str(world_path(file.path))), now)
    assert "other work uses 50% of the cores, and used 0%" in told
    store(a_calibration(file), world_path(file.path))  # of an earlier release: without a look
    assert changed_machine(chosen_world(file, str(world_path(file.path))), now) == ()
    assert changed_machine(chosen_world(file, "none"), now) == ()


def test_rates_rise_and_fall_so_that_drift_does_not_look_like_a_rate_effect(tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    assert rates_of(CalibrationRequest(file=file, rates_qps=(40.0,))) == (20.0, 40.0)
    assert rates_of(CalibrationRequest(file=file, rates_qps=(40.0, 10.0))) == (10.0, 40.0)
    low, high = rates_of(CalibrationRequest(file=file, policy="loki"))
    assert 0 < low < high
    assert rates_in_turn((10.0, 30.0), 3) == (10.0, 30.0, 30.0, 10.0, 10.0, 30.0)


def test_queries_have_the_sizes_of_their_file_or_those_that_the_pipeline_names(
    tmp_path: Path,
) -> None:
    file = read_pipeline_file(a_typed_file(tmp_path))
    recorded = tmp_path / "sized.csv"
    recorded.write_text("time,size\n0.5,10\n1.0,700\n3.0,90\n")
    made = certificate_request(file, recorded, devices={"gpu": 1, "slow": 1}, until_s=2.0)
    assert drawn_arrivals(made).sizes == (10, 700)
    without = certificate_request(
        file, some_arrivals(tmp_path, 20.0, 4.0), devices={"gpu": 1, "slow": 1}
    )
    found = drawn_arrivals(without)
    assert len(found.sizes) == len(found.times_s) == 80
    assert set(found.sizes) == {10, 100, 1000}
    assert drawn_arrivals(without).sizes == found.sizes


def test_larger_queries_are_predicted_to_be_slower(tmp_path: Path) -> None:
    file = read_pipeline_file(a_typed_file(tmp_path))

    def p50_ms(size: int) -> float | None:
        path = tmp_path / f"{size}.csv"
        path.write_text("time,size\n" + "".join(f"{at / 4},{size}\n" for at in range(1, 40)))
        made = certificate_request(file, path, devices={"gpu": 1, "slow": 1}, simulations=1)
        found = {metric.name: metric for metric in predict(made, drawn_arrivals(made)).metrics}
        return found["p50_ms"].predicted

    small, large = p50_ms(10), p50_ms(1000)
    assert small is not None
    assert large is not None
    assert large > small + 50  # on the gpu 10 ms, and 80 ms


@pytest.mark.parametrize("command", ["calibrate", "profile"])
def test_what_cannot_be_stored_is_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """It used to be lost after minutes, with a traceback."""
    path = a_cluster(tmp_path)
    assert run([command, str(path), "--out", str(tmp_path / "none" / "out.json")]) == BAD_INPUT
    assert "there is no folder" in capsys.readouterr().err
