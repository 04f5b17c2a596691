"""Roles of a judged run read a file with the named policy and the requested workers."""

from pathlib import Path

import pytest
import yaml

from benchmarks.small_cluster import a_cluster
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.errors import PipelineError
from headrace.fidelity.variant_file import as_asked
from tests.typed_files import a_typed_file


def test_file_with_the_policy_and_workers_is_used_unchanged(tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    with as_asked(file, file.pipeline.policy, 4) as found:
        assert found is file


def test_another_policy_and_other_workers_are_in_a_file_for_the_time_of_the_run(
    tmp_path: Path,
) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    before = set(tmp_path.iterdir())
    with as_asked(file, "fast", {"emulated": 2}) as found:
        again = read_pipeline_file(found.path)
        assert (again.pipeline.policy, again.cluster.devices) == ("fast", (("emulated", 2),))
        assert load_profile(again) == load_profile(file)
        assert found.pipeline.name == file.pipeline.name
    assert set(tmp_path.iterdir()) == before


def test_fewer_workers_than_another_policy_asks_for_are_no_obstacle(tmp_path: Path) -> None:
    four = {"replicas": {"detect/small": 3, "read/small": 1}}
    file = read_pipeline_file(a_cluster(tmp_path, policies={"fast": four}))
    with as_asked(file, file.pipeline.policy, 2) as found:
        assert found.cluster.devices == (("emulated", 2),)
    with (
        pytest.raises(PipelineError, match="'fast' asks for 4 replicas but the cluster has 2"),
        as_asked(file, "fast", 2),
    ):
        pass


def test_devices_of_types_are_those_to_start_with(tmp_path: Path) -> None:
    file = read_pipeline_file(a_typed_file(tmp_path))
    with as_asked(file, devices={"gpu": 1, "slow": 3}) as found:
        section = yaml.safe_load(found.path.read_text())["cluster"]
        assert (section["start"], "devices" in section) == ({"gpu": 1, "slow": 3}, False)
        assert found.cluster.devices == (("gpu", 1), ("slow", 3))


def test_workers_that_share_a_device_are_counted_once_more(tmp_path: Path) -> None:
    cluster = {"devices": {"emulated": 2}, "tasks_per_device": 2}
    file = read_pipeline_file(a_cluster(tmp_path, cluster=cluster))
    with as_asked(file, devices=3) as found:
        assert found.cluster.devices == (("emulated", 6),)


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    file = read_pipeline_file(a_cluster(tmp_path))
    with pytest.raises(PipelineError, match="no policy 'best'"), as_asked(file, "best"):
        pass
