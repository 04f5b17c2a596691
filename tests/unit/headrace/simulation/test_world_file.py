"""The calibration beside a pipeline file: stored, read, and used only if it fits."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Rates, Renewal
from headrace.cli.main import run
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.errors import CalibrationError
from headrace.machine import machine
from headrace.machine_look import MachineLook
from headrace.results.figures import Figures
from headrace.simulation.experiments import simulate
from headrace.simulation.overrides import overridden
from headrace.simulation.world_file import (
    VALID_DAYS,
    Calibration,
    as_json,
    beyond,
    beyond_of,
    chosen_world,
    from_json,
    profiles_sha256,
    read,
    store,
    stretches_by_kind,
    tasks_sha256,
    world_path,
)
from streams.simulated.delays import ANY_SIZE
from streams.simulated.world import Levels, Phase, World

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
FIGURES = Figures(
    queries=100, p50_ms=40.0, p95_ms=60.0, p99_ms=70.0, branch_violation=0.0, violation=0.0,
    accuracy=0.9, devices_mean=4.0,
)  # fmt: skip


def always(value: float) -> Levels:
    return {0: tuple((at / 10, value) for at in range(200))}


def a_calibration(file: PipelineFile, hop_s: float = 0.001) -> Calibration:
    phase = Phase(
        rate_qps=20.0, seconds=20.0, hops=always(hop_s), ways_in=always(hop_s),
        ways_out=always(hop_s), lag_s=0.0002, starts={"read": always(0.001)},
        charged={"read": {0: 1.5, 2: 1.25}, "locate": {0: inf}},
        stretch={
            ("read", "cpu", ANY_SIZE): {0: always(2.0)[0], 1: always(4.0)[0]},
            ("read", "cuda:0", ANY_SIZE): always(1.5),
        },
    )  # fmt: skip
    return Calibration(
        world=World((phase,), ((0.0, 0.001), (1.0, 0.002))), figures=(FIGURES,), pipeline="lines",
        tasks_sha256=tasks_sha256(file), profiles_sha256=profiles_sha256(file),
        devices={"emulated": 4}, policy="static", dilate=1.0, date=NOW.isoformat(),
        machine=machine(), versions={"headrace": "0"}, host_cpu_share=0.5,
    )  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> PipelineFile:
    return read_pipeline_file(a_cluster(tmp_path))


def test_a_calibration_is_read_as_it_was_stored(file: PipelineFile) -> None:
    store(a_calibration(file), world_path(file.path))
    assert read(world_path(file.path)) == a_calibration(file)
    assert world_path(file.path).name == "pipeline.world.json"


def test_the_look_at_the_machine_is_read_as_stored_and_earlier_calibrations_have_none(
    file: PipelineFile,
) -> None:
    looked = replace(a_calibration(file), look=MachineLook(work_s=0.002, others=0.1))
    assert from_json(json.loads(json.dumps(as_json(looked)))) == looked
    earlier = as_json(looked)
    del earlier["look"]
    assert from_json(earlier) == replace(looked, look=None)


def test_earlier_calibrations_have_one_charge_for_all_levels(file: PipelineFile) -> None:
    found = a_calibration(file)
    earlier = json.loads(json.dumps(as_json(found)))
    earlier["phases"][0]["charged"] = {"read": 1.5, "locate": None}
    (phase,) = from_json(earlier).world.phases
    assert phase.charged == {"read": {0: 1.5}, "locate": {0: inf}}


def test_without_a_calibration_built_in_figures_are_used_and_said(file: PipelineFile) -> None:
    found = chosen_world(file, None)
    assert found.world is None
    assert "built-in figures" in found.sentence
    assert "headrace calibrate pipeline.yaml" in found.sentence


def test_one_that_fits_is_used_also_with_other_devices_and_policies(file: PipelineFile) -> None:
    store(a_calibration(file), world_path(file.path))
    other = replace(overridden(file, 2), pipeline=replace(file.pipeline, policy="loki", slo_s=1.0))
    found = chosen_world(other, None, NOW)
    assert found.world == a_calibration(file).world
    assert NOW.isoformat() in found.sentence


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"machine": "another"}, "measured on another"),
        ({"date": (NOW - timedelta(days=VALID_DAYS + 1)).isoformat()}, "days old"),
        ({"tasks_sha256": "x"}, "other tasks"),
        ({"profiles_sha256": {"profile.json": "x"}}, "another profile"),
    ],
)
def test_one_that_does_not_fit_is_left_alone_with_the_reason(
    file: PipelineFile, changes: dict[str, object], why: str
) -> None:
    store(replace(a_calibration(file), **changes), world_path(file.path))
    found = chosen_world(file, None, NOW)
    assert (found.world, why in found.sentence) == (None, True)
    assert chosen_world(file, "none").world is None


def test_a_named_one_may_be_another_machine_s_but_not_another_pipeline_s(
    file: PipelineFile,
) -> None:
    path = file.path.with_name("other.json")
    store(replace(a_calibration(file), machine="another"), path)
    assert "measured on another" in chosen_world(file, str(path), NOW).sentence
    store(replace(a_calibration(file), tasks_sha256="x"), path)
    with pytest.raises(CalibrationError, match="other tasks"):
        chosen_world(file, str(path), NOW)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("date", "yesterday"),
        ("date", "2026-11-22T12:00:00"),
        ("date", None),
        ("profiles_sha256", "x"),
        ("seconds", 0),
        ("hops", {"0": {"at_s": [0.0], "value": ["x"]}}),
    ],
)
def test_a_damaged_calibration_is_refused_with_a_remedy(
    file: PipelineFile, key: str, value: object
) -> None:
    store(a_calibration(file), world_path(file.path))
    document = json.loads(world_path(file.path).read_text())
    (document if key in document else document["phases"][0])[key] = value
    world_path(file.path).write_text(json.dumps(document))
    with pytest.raises(CalibrationError, match=r"cannot be read \(.*headrace calibrate"):
        chosen_world(file, None, NOW)


def test_a_calibration_without_its_profile_is_left_alone(file: PipelineFile) -> None:
    """The missing profile used to end commands with a traceback instead of its sentence."""
    store(a_calibration(file), world_path(file.path))
    file.profiles[0].unlink()
    assert "measured with another profile" in chosen_world(file, None, NOW).sentence


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 7}', '{"format": 1, "phases": []}'])
def test_invalid_calibration_is_refused_with_a_remedy(file: PipelineFile, text: str) -> None:
    world_path(file.path).write_text(text)
    with pytest.raises(CalibrationError, match="headrace calibrate"):
        chosen_world(file, None)


def test_a_simulation_goes_by_the_calibration_and_by_its_seed_alone(file: PipelineFile) -> None:
    asked = {"arrivals": [0.1 * at for at in range(100)], "devices": 4}
    plain = simulate(file, **asked, world="none")
    slow = replace(a_calibration(file, hop_s=0.02), date=datetime.now(UTC).isoformat())
    store(slow, world_path(file.path))
    first, again = simulate(file, **asked), simulate(file, **asked)
    timed = {"cpu_seconds": 0, "solve_cpu_seconds": 0}
    assert first[0] | timed == again[0] | timed
    # Two hops in, one between the tasks, one out: 80 ms instead of about 2.
    assert 65 < first[0]["p50_ms"] - plain[0]["p50_ms"] < 90


def test_a_rate_far_from_the_calibrated_ones_is_said(file: PipelineFile) -> None:
    world = a_calibration(file).world
    assert (beyond(world, 15.0), "40 queries/s" in beyond(world, 40.0)) == ("", True)


def test_loads_beyond_the_calibrated_rates_are_said_by_their_busiest_seconds(
    file: PipelineFile,
) -> None:
    world = a_calibration(file).world
    ramp = Rates((15.0,) * 60 + (60.0,) * 40)
    assert beyond_of(None, [ramp]) == ""
    assert [beyond_of(world, [Renewal(20.0, 60.0)]) for _ in range(3)] == [""] * 3
    assert "queries/s is outside the calibrated rates (20 to 20)" in beyond_of(world, [ramp])
    twice = beyond_of(world, [Renewal(20.0, 60.0), Renewal(40.0, 60.0), Renewal(80.0, 60.0)])
    assert twice.count("outside the calibrated rates") == 2


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_commands_say_that_a_load_is_beyond_the_calibrated_rates(
    file: PipelineFile, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store(replace(a_calibration(file), date=datetime.now(UTC).isoformat()), world_path(file.path))
    told = {}
    for rate in ("20", "90"):
        arrivals = file.path.with_name("arrivals.txt")
        arrivals.write_text("".join(f"{at * 1e3 / float(rate):.3f}\n" for at in range(1, 200)))
        assert run([command, str(file.path), "--arrivals", str(arrivals)]) == 0
        told[rate] = "outside the calibrated rates" in capsys.readouterr().err
    assert told == {"20": False, "90": True}


def test_plans_take_real_devices_to_be_as_slow_as_their_batches_were(file: PipelineFile) -> None:
    found = a_calibration(file)
    assert stretches_by_kind(found, file) == {}  # emulated
    assert stretches_by_kind(found, overridden(file, {"cpu": 4})) == {"cpu": 3.0}
    both = overridden(file, {"cpu": 2, "cuda:0": 1})
    assert stretches_by_kind(found, both) == {"cpu": 3.0, "cuda:0": 1.5}


def test_profiles_of_one_name_are_both_compared(file: PipelineFile, tmp_path: Path) -> None:
    """The second one hid a change of the first."""
    places = [tmp_path / folder / "profile.json" for folder in ("first", "second")]
    for each in places:
        each.parent.mkdir()
        each.write_text("{}")
    both = replace(file, profiles=(*places, file.path.parent / "more.json"))
    before = profiles_sha256(both)
    assert list(before) == ["first/profile.json", "second/profile.json", "more.json"]
    places[0].write_text("[]")
    assert profiles_sha256(both) != before
