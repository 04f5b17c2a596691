"""The devices of this machine that run the types of a cluster."""

from pathlib import Path

import pytest

from headrace.config.pipeline_file import read_pipeline_file
from headrace.errors import PipelineError
from tests.typed_files import RANK, a_typed_file


def test_workers_of_types_reserve_the_device_that_they_run_on(tmp_path: Path) -> None:
    text = RANK.replace("slow: {device: emulated", "slow: {device: cpu")
    started = text.replace("budget: 1.2", "budget: 1.2\n  start: {gpu: 1, slow: 3}")
    cluster = read_pipeline_file(a_typed_file(tmp_path, started)).cluster
    assert cluster.reserved == {"emulated": 1, "cpu": 3}
    assert [cluster.emulated(name) for name in ("gpu", "slow", "cpu", "emulated")] == [
        True, False, False, True,
    ]  # fmt: skip


def test_a_worker_of_a_type_reserves_its_share_of_a_core(tmp_path: Path) -> None:
    text = RANK.replace("slow: {device: emulated", "slow: {device: cpu, share: 0.25")
    started = text.replace("budget: 1.2", "budget: 1.2\n  start: {gpu: 1, slow: 3}")
    cluster = read_pipeline_file(a_typed_file(tmp_path, started)).cluster
    assert cluster.reserved == {"emulated": 1, "cpu": 0.75}
    assert [cluster.type_share(name) for name in ("gpu", "slow", "cpu")] == [1.0, 0.25, 1.0]


@pytest.mark.parametrize(
    ("share", "complaint"),
    [
        ("share: 0.5", "cannot be kept, only that of a core can; leave it out, or add device: cpu"),
        ("device: cpu, share: 0", "above 0"),
        ("device: cpu, share: 1.5", "at most 1"),
    ],
)
def test_a_share_that_cannot_be_kept_is_refused(tmp_path: Path, share: str, complaint: str) -> None:
    text = RANK.replace("slow: {device: emulated", f"slow: {{{share}")
    with pytest.raises(PipelineError, match=complaint):
        read_pipeline_file(a_typed_file(tmp_path, text))


@pytest.mark.parametrize(
    ("gpu", "start", "complaint"),
    [
        ("price: 0.5", "{gpu: 2, slow: 2}",
         "cluster.start costs 1.4 \\$ per hour, above cluster.budget of 1.2; start with fewer "
         "devices, or raise the budget"),
        ("price: 0.5, most: 1", "{gpu: 2}",
         "cluster.start.gpu is 2, above the type's most of 1; lower it, or raise most"),
    ],
)  # fmt: skip
def test_a_first_mix_above_a_limit_is_refused(
    tmp_path: Path, gpu: str, start: str, complaint: str
) -> None:
    text = RANK.replace("price: 0.5", gpu).replace("  budget", f"  start: {start}\n  budget")
    with pytest.raises(PipelineError, match=complaint):
        read_pipeline_file(a_typed_file(tmp_path, text))


def test_a_first_mix_may_cost_the_whole_budget(tmp_path: Path) -> None:
    text = RANK.replace("  budget", "  start: {gpu: 2, slow: 1}\n  budget")
    assert len(read_pipeline_file(a_typed_file(tmp_path, text)).cluster.workers) == 3
