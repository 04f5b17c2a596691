"""Workers as a process: their nodes, and the executors that run their models."""

import os
from collections.abc import Mapping

import numpy as np

from control.problem.seats import task_of
from headrace.config.cluster import Cluster
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import planning_profile
from headrace.roles.link_file import file_links, follow_link_file
from headrace.roles.observability.log_options import LogOptions
from headrace.roles.process_setup import dilation, process_clock
from headrace.roles.profile_lookups import latency_of
from headrace.roles.role_process import (
    crash_journal,
    driver,
    load_journal,
    namesakes_of,
    process_now,
    run_until_signal,
)
from headrace.roles.workers.worker_models import (
    charged_of,
    emulated_executor,
    limited,
    model_maker,
    setting_of,
    shared_cpu,
    worker_devices,
)
from operators.models.loading import preload
from operators.models.user_modules import forget_code
from operators.serving.transfers import SessionLinks
from operators.serving.worker import Worker
from profiles.measurements import EMULATED
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline
from streams.kafka.admin.preflight import prepare
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.transport import KafkaTransport
from streams.live.crash_journal import CrashJournal
from streams.live.executors import ModelExecutor
from streams.live.live_driver import Live

# NVIDIA's Multi-Process Service (MPS) limits a process to a part of the GPU's processors. The
# driver reads the variable when the process first uses the GPU; without MPS it ignores it.
MPS_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
LEAVE_S = 8.0  # longest wait of an ending worker for others to take over its slots


def run_worker(
    file: PipelineFile,
    kafka: KafkaConfig,
    name: str,
    device: str,
    count: int,
    seed: int,
    logs: LogOptions,
) -> None:
    """Serve as a worker until SIGTERM or SIGINT; ``count`` workers share the process: emulated
    ones, or those that share a device. Raises ``PipelineError`` for an unknown device."""
    pipeline = file.pipeline
    devices = worker_devices(file, name, device, count)
    prepare(kafka, pipeline, "worker")
    names = list(devices)
    incarnation, namesakes = process_now(), namesakes_of(kafka, pipeline, names)
    profile = planning_profile(file)
    journals: dict[str, CrashJournal] = {}
    os.environ.update(mps_variables(file.cluster, device, os.environ))
    if file.cluster.host_device(devices[names[0]]) != EMULATED:
        preload_operators(pipeline, devices)
        journals = {each: crash_journal(pipeline, each) for each in names}
    links = file_links(file)
    nodes = worker_nodes(file, devices, device, incarnation, profile, journals, links)
    namesakes.check()
    follow_link_file(links, pipeline.name)
    transport = KafkaTransport(kafka, f"{pipeline.name}.workers")
    with driver(pipeline, nodes, transport, logs, role=name, namesakes=namesakes) as live:
        attach(live, file, profile, devices, seed, journals)
        namesakes.watch(incarnation, live.fail)
        run_until_signal(live, lambda: live.leave(LEAVE_S / dilation().factor))


def worker_nodes(
    file: PipelineFile,
    devices: Mapping[str, str],
    device: str,
    incarnation: float,
    profile: ProfileTable,
    journals: Mapping[str, CrashJournal],
    links: SessionLinks | None,
) -> dict[str, Worker]:
    """Return the workers of one process by name; ``devices`` has the device that each reports."""
    latency, planned = latency_of(profile, device), latency_of(profile, device, "p95")
    return {
        each: Worker(
            each, file.pipeline, reported, incarnation=incarnation, latency=latency,
            planned=planned, strikes=journals[each].strikes if journals else None, links=links,
        )
        for each, reported in devices.items()
    }  # fmt: skip


def mps_variables(cluster: Cluster, device: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to the environment ``env`` of a worker on ``device``, so that it
    uses its part of a GPU; a percentage that is there stays."""
    percentage = cluster.gpu_percentage(device)
    if percentage is None or MPS_PERCENTAGE in env:
        return {}
    return {MPS_PERCENTAGE: str(percentage)}


def preload_operators(pipeline: Pipeline, devices: Mapping[str, str]) -> None:
    """Import the libraries of the operators that these devices may run, before any of them runs."""
    tasks = {task_of(reported) for reported in devices.values()}
    served = [t for t in pipeline.tasks if t.name in tasks or "" in tasks]
    preload(v for task in served for v in task.variants if not limited(v))


def attach(
    live: Live,
    file: PipelineFile,
    profile: ProfileTable,
    devices: Mapping[str, str],
    seed: int,
    journals: Mapping[str, CrashJournal],
) -> None:
    cpu = shared_cpu(file, file.cluster.host_device(next(iter(devices.values()))), len(devices))
    for number, (each, device) in enumerate(devices.items()):
        host = file.cluster.host_device(device)
        if host == EMULATED:
            rng = np.random.default_rng([seed, number])
            executor = emulated_executor(live, each, file.pipeline, profile, rng, device)
            live.attach(each, executor)
        else:
            make = model_maker(file, device, cpu, number)
            running = ModelExecutor(
                make, host, live.post(each), process_clock, journals[each], forget_code,
                lambda key: limited(setting_of(file, key)), load_journal(file.pipeline, each),
                charged_of(cpu, number),
            )  # fmt: skip
            live.attach(each, running)
