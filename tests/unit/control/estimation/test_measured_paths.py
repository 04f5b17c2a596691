import json
from dataclasses import replace

import pytest

from benchmarks.small_cluster import LINES, an_entry
from control.estimation.measured_paths import MOVED, corrected, moved
from profiles.profile_json import parsed_profile
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Task, Variant
from tests.builders import a_pipeline

SMALL = ("detect/small", "read/small")


def a_table() -> ProfileTable:
    entries = [
        an_entry(task, name, below, 2, 0.01, 0.1)
        for task, below in LINES.items()
        for name in ("small", "large")
    ]
    return parsed_profile(json.dumps({"pipeline": "lines", "provenance": {}, "entries": entries}))


def lines() -> Pipeline:
    tasks = tuple(
        Task(
            name=name, children=tuple(below),
            variants=tuple(
                Variant(task=name, name=each, operator="m:C") for each in ("small", "large")
            ),
        )
        for name, below in LINES.items()
    )  # fmt: skip
    return a_pipeline(tasks=tasks)


def test_without_measurements_of_its_paths_the_profile_stands() -> None:
    table = a_table()
    assert corrected(table, lines(), {}) is table
    assert corrected(table, lines(), {"detect/other > read/small": 0.5}) is table


def test_variant_without_a_profile_takes_part_in_no_path() -> None:
    """The control app ended with an error once a scorer had measured any path."""
    whole = a_table()
    table = replace(whole, entries=tuple(x for x in whole.entries if x.key != "read/large"))
    measured = {" > ".join(SMALL): 0.32, "detect/small > read/large": 0.9}
    found = corrected(table, lines(), measured).path_accuracy
    assert found[SMALL] == 0.32
    assert found.keys() == {SMALL, ("detect/large", "read/small")}
    assert corrected(table, lines(), {"detect/small > read/large": 0.9}) is table


def test_measured_paths_count_and_unmeasured_paths_drift_in_proportion() -> None:
    table = a_table()
    profile = corrected(table, lines(), {" > ".join(SMALL): 0.32})  # half of 0.64
    found = profile.path_accuracy
    assert profile.accuracy("read", "small") < 0.8 * 0.75
    assert found[SMALL] == 0.32
    for path, accuracy in found.items():
        ratio = accuracy / table.along(path)
        assert ratio == pytest.approx(0.5, abs=0.02), path


def test_a_variant_that_drifts_alone_is_found_by_paths_that_do_not() -> None:
    table = a_table()
    measured = {
        "detect/small > read/small": 0.64 * 0.6,
        "detect/large > read/small": 0.76 * 0.6,
        "detect/large > read/large": 0.9025,
    }
    found = corrected(table, lines(), measured).path_accuracy
    follows = found["detect/small", "read/large"]
    assert follows == pytest.approx(0.76, abs=0.06)  # as profiled: neither variant has drifted


def test_changed_measured_accuracy_triggers_a_plan() -> None:
    assert moved({}, {}) is None
    assert moved({}, {"a/v": 0.5}) == "a/v"
    assert moved({"a/v": 0.5}, {}) == "a/v"
    assert moved({"a/v": 0.5}, {"a/v": 0.5 + MOVED / 2}) is None
    assert moved({"a/v": 0.5}, {"a/v": 0.5 + 2 * MOVED}) == "a/v"
