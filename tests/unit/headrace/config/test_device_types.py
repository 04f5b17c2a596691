"""The devices of this machine behind the types of a cluster."""

from pathlib import Path

from headrace.config.pipeline_file import read_pipeline_file
from tests.typed_files import RANK, a_typed_file


def test_workers_of_types_reserve_the_device_that_they_run_on(tmp_path: Path) -> None:
    text = RANK.replace("slow: {device: emulated", "slow: {device: cpu")
    started = text.replace("budget: 1.2", "budget: 1.2\n  start: {gpu: 1, slow: 3}")
    cluster = read_pipeline_file(a_typed_file(tmp_path, started)).cluster
    assert cluster.reserved == {"emulated": 1, "cpu": 3}
    assert [cluster.emulated(name) for name in ("gpu", "slow", "cpu", "emulated")] == [
        True, False, False, True,
    ]  # fmt: skip
