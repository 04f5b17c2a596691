"""Several tasks on one device: the cluster section, processes, plans and a simulation."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster
from headrace.config.cluster import Cluster
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.profile_files import load_profile, planning_profile
from headrace.config.topology import Role, cluster_workers
from headrace.config.validation import unkept
from headrace.errors import PipelineError
from headrace.machine import runs_mps
from headrace.profiling.device_profiling import companions
from headrace.roles.workers.worker_role import MPS_PERCENTAGE, mps_variables
from headrace.simulation.experiments import plannable_demand, simulate
from headrace.simulation.overrides import overridden
from headrace.simulation.run_input import devices

TREE = {"split": ("one", "two", "three"), "one": (), "two": (), "three": ()}


def a_tree(folder: Path, **cluster: object) -> Path:
    """Return four light tasks; a batch of one takes 4 ms and the SLO is 250 ms."""
    whole = {"devices": {"emulated": 1}, **cluster}
    return a_cluster(folder, children=TREE, fan_out=1, batch_s=0.004, cluster=whole)


def test_a_shared_device_is_a_worker_for_each_part_of_its_time_and_memory(tmp_path: Path) -> None:
    path = a_tree(
        tmp_path, devices={"cpu": 2}, tasks_per_device=4, share=0.5, memory={"cpu": "1GB"}
    )
    assert read_pipeline_file(path).cluster == Cluster(
        (("cpu", 8),), share=0.125, memory=(("cpu", 250_000_000),), tasks_per_device=4
    )


def test_latencies_of_a_shared_device_are_those_of_its_part_of_the_time(tmp_path: Path) -> None:
    file = read_pipeline_file(a_tree(tmp_path, tasks_per_device=4))
    whole, part = (
        table.latency_s("one", "small", "emulated", 1, "mean")
        for table in (load_profile(file), planning_profile(file))
    )
    assert part == pytest.approx(4 * whole)


def test_the_workers_of_a_shared_device_are_one_process_and_report_one_by_one() -> None:
    cluster = Cluster((("cpu", 4),), tasks_per_device=2)
    assert cluster_workers(cluster, "cpu", 4) == [
        Role(
            f"cpu-{number}", "worker",
            ("--name", f"cpu-{number}", "--device", "cpu", "--count", "2"),
            (f"cpu-{number}-0", f"cpu-{number}-1"),
        )
        for number in range(2)
    ]  # fmt: skip


def test_workers_of_a_shared_gpu_are_separate_processes() -> None:
    cluster = Cluster((("cuda:0", 4),), tasks_per_device=2)
    assert cluster_workers(cluster, "cuda:0", 4) == [
        Role(name, "worker", ("--name", name, "--device", "cuda:0"), (name,))
        for name in ("cuda0-0-0", "cuda0-0-1", "cuda0-1-0", "cuda0-1-1")
    ]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_shared_device_is_profiled_alone(tmp_path: Path, device: str) -> None:
    file = read_pipeline_file(a_tree(tmp_path, devices={device: 1}, tasks_per_device=4))
    assert companions(device, [device], file.cluster, cpus=8, busy=None) == []


def test_a_simulation_has_the_workers_of_a_live_run(tmp_path: Path) -> None:
    file = read_pipeline_file(a_tree(tmp_path, devices={"cpu": 1}, tasks_per_device=4))
    assert list(devices(file)) == ["cpu-0-0", "cpu-0-1", "cpu-0-2", "cpu-0-3"]
    assert dict(overridden(file, devices=3).cluster.devices) == {"cpu": 12}


@pytest.mark.parametrize(
    "cluster",
    [
        {"types": {"a": {"device": "cpu"}}, "budget": 1},
        {"tiers": {"edge": {"device": "cpu", "count": 1}}},
    ],
    ids=["types", "tiers"],
)
def test_unsupported_device_sharing_is_refused(tmp_path: Path, cluster: dict[str, object]) -> None:
    with pytest.raises(PipelineError, match=r"divides cluster\.devices, not types or tiers"):
        read_pipeline_file(a_tree(tmp_path, **cluster, tasks_per_device=2))


@pytest.mark.parametrize("policy", ["static", "loki"])
def test_a_tree_of_four_light_tasks_at_five_queries_a_second_needs_one_device(
    tmp_path: Path, policy: str
) -> None:
    asked = {"policies": [policy], "rate_qps": 5.0, "seconds": 20.0, "warm_up_s": 5.0}
    with pytest.raises(PipelineError, match=r"4 tasks need a worker each .*tasks_per_device"):
        simulate(a_tree(tmp_path), **asked)
    (shared,) = simulate(a_tree(tmp_path, tasks_per_device=4), **asked)
    assert (shared["violation"], shared["answered"]) == (0.0, shared["queries"])


def test_a_shared_device_serves_no_more_than_its_time(tmp_path: Path) -> None:
    """Without batches, one device's time for the four tasks of each query bounds the queries/s."""
    file = read_pipeline_file(a_tree(tmp_path, tasks_per_device=4))
    alone = tuple(
        replace(task, variants=tuple(replace(v, batch=1) for v in task.variants))
        for task in file.pipeline.tasks
    )
    single = replace(file, pipeline=replace(file.pipeline, tasks=alone))
    table = load_profile(file)
    busy_s = sum(table.latency_s(task, "small", "emulated", 1, "mean") for task in TREE)
    (found,) = plannable_demand(single, policies=["loki"])
    assert 0 < found["demand_qps"] <= 1 / busy_s


@pytest.mark.parametrize(
    ("devices", "share", "parts", "percentage"),
    [
        ((("cuda:0", 4),), 0.5, 1, 12),  # rounded down: together they keep to the share
        ((("cuda:0", 1),), 0.29, 1, 29),
        ((("cuda:0", 1), ("cuda:1", 2)), 0.5, 1, 50),
        ((("cuda:0", 4),), 0.125, 2, 6),  # `share: 0.25`, divided by two parts
        ((("cuda:0", 400),), 0.5, 1, 1),
        ((("cuda:0", 4),), 1.0, 1, None),
        ((("cuda:0", 6),), 1 / 3, 3, None),
    ],
)
def test_workers_of_a_gpu_divide_the_share_of_their_pipeline(
    devices: tuple[tuple[str, int], ...], share: float, parts: int, percentage: int | None
) -> None:
    cluster = Cluster((*devices, ("cpu", 2)), share=share, tasks_per_device=parts)
    assert cluster.gpu_percentage("cuda:0") == percentage
    assert cluster.gpu_percentage("cpu") is None


def test_a_gpu_worker_tells_mps_its_part_unless_its_user_did() -> None:
    cluster = Cluster((("cuda:0", 2), ("cpu", 2)), share=0.5)
    assert mps_variables(cluster, "cuda:0", {}) == {MPS_PERCENTAGE: "25"}
    assert mps_variables(cluster, "cuda:0", {MPS_PERCENTAGE: "40"}) == {}
    assert mps_variables(cluster, "cpu", {}) == {}


def test_a_share_of_a_gpu_that_nothing_keeps_is_said() -> None:
    cluster = Cluster((("cuda:0", 2), ("cpu", 2)), share=0.5)
    (warning,) = unkept(cluster, mps=False)
    assert warning.startswith(
        "cluster.share is 0.5, and nothing keeps workers to that part of cuda:0"
    )
    assert unkept(cluster, mps=True) == []
    assert unkept(Cluster((("cuda:0", 2),)), mps=False) == []
    assert unkept(Cluster((("cpu", 2),), share=0.5), mps=False) == []


def test_mps_runs_where_it_has_its_pipe(tmp_path: Path) -> None:
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert not runs_mps(env)
    (tmp_path / "control").touch()
    assert runs_mps(env)
