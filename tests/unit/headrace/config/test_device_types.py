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
