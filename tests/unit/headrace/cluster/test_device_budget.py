"""Shares of devices, summed over the running pipelines on this machine."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cluster.device_budget import outnumbered, overbooked
from headrace.cluster.run_state import RunState, neighbours, write_state
from headrace.processes import Process

HERE = Process.found("up", os.getpid())


def a_run(pipeline: str, devices: Mapping[str, int], share: float = 1.0) -> RunState:
    return RunState(
        pipeline=pipeline, file="", bootstrap="", supervisor=HERE, devices=devices, share=share
    )


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        (a_run("a", {"cpu": 2}, 0.5), a_run("b", {"cpu": 2}, 0.5)),
        (a_run("a", {"cpu": 1}), a_run("b", {"cpu": 1})),
        (a_run("a", {"cpu": 9}), a_run("b", {"emulated": 9})),
        (a_run("a", {"emulated": 9}), a_run("b", {"emulated": 9})),
        (a_run("a", {"cuda:0": 3}, 0.7), a_run("b", {"cuda:0": 4}, 0.3)),
        (a_run("a", {"cuda:0": 1}), a_run("b", {"cuda:1": 1})),
    ],
)
def test_runs_within_the_cores_are_not_warned_about(mine: RunState, other: RunState) -> None:
    assert overbooked(mine, [other], cores=2) == []


def test_oversubscription_by_a_single_run_is_not_a_sharing_fault() -> None:
    assert overbooked(a_run("a", {"cpu": 9}), [], cores=2) == []


def test_single_run_that_plans_with_more_cores_than_exist_is_warned() -> None:
    (warning,) = outnumbered(a_run("a", {"cpu": 4}), cores=2)
    assert warning.startswith("the cpu workers need 4 cores and this machine has 2;")
    assert outnumbered(a_run("a", {"cpu": 4}, 0.5), cores=2) == []
    assert outnumbered(a_run("a", {"emulated": 20, "cuda:0": 2}), cores=2) == []


def test_a_worker_counts_for_its_share_of_a_core() -> None:
    assert overbooked(a_run("a", {"cpu": 2}), [a_run("b", {"cpu": 2}, 0.5)], cores=2) == [
        "the pipelines on this machine need more than its 2 cores: a on 2 and b on 1, 3 cores "
        "in total; plans overestimate capacity; lower cluster.share or cluster.devices"
    ]


def test_workers_that_divide_a_gpu_count_for_all_of_it() -> None:
    parts = replace(a_run("a", {"cuda:0": 4}, 0.25), tasks_per_device=4)
    (warning,) = overbooked(parts, [a_run("b", {"cuda:0": 1}, 0.5)], cores=2)
    assert "its one cuda:0: a on 1 and b on 0.5, 1.5 of cuda:0 in total;" in warning


def test_a_pipeline_counts_for_its_share_of_a_gpu() -> None:
    others = [a_run("b", {"cuda:0": 4}, 0.5), a_run("c", {"cpu": 1})]
    (told,) = overbooked(a_run("a", {"cuda:0": 1}, 0.75), others, cores=2)
    assert "its one cuda:0: a on 0.75 and b on 0.5, 1.25 of cuda:0 in total;" in told


def test_the_neighbours_are_the_other_runs_that_are_alive(tmp_path: Path) -> None:
    mine, alive, gone = a_run("a", {}), a_run("b", {"cpu": 1}, 0.5), a_run("c", {})
    for run in (mine, alive, gone):
        (tmp_path / run.pipeline).mkdir()
        write_state(tmp_path / run.pipeline, run)
    dead = RunState(pipeline="c", file="", bootstrap="", supervisor=Process("up", 1, 0.0))
    write_state(tmp_path / "c", dead)
    (tmp_path / "no-run").mkdir()
    assert neighbours(tmp_path / "a") == [alive]
    assert neighbours(tmp_path / "gone" / "a") == []
