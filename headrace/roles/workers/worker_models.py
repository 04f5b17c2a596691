"""Build what runs a worker's batches: models in this process or their own, emulated devices."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from control.problem.seats import task_of
from headrace.config.cluster import TierDevices
from headrace.config.field_types import device_name
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import PipelineError
from headrace.roles.core_clock import without_core_waits_s
from headrace.roles.process_setup import node_clock
from headrace.roles.profile_lookups import variant_of
from headrace.roles.workers.shared_cpu import PaidOperator, PartOperator, SharedCpu
from headrace.roles.workers.subprocess_operator import Isolated
from operators.models.emulated import Emulated
from operators.models.loading import load_operator
from operators.models.warm_up import Warmed
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Variant
from schemas.variant_id import variant_id
from streams.live.executors import EmulatedExecutor, Operator
from streams.live.live_driver import Live


def worker_devices(file: PipelineFile, name: str, device: str, count: int) -> dict[str, str]:
    """Return the workers of one process with the device that each reports.

    A device of a tier has one for each task that the tier may run. Raises ``PipelineError`` for a
    name that is no device, and no type or tier of the file.
    """
    tier = file.cluster.tier(device)
    if tier is not None:
        return tier.seats(name)
    try:
        device_name(file.cluster.host_device(device))
    except ValueError as error:
        raise PipelineError(str(error).replace("{}", "--device", 1)) from error
    names = [name] if count == 1 else [f"{name}-{i}" for i in range(count)]
    return dict.fromkeys(names, device)


def share_of(file: PipelineFile, device: str) -> float:
    """Return the share of a core that a device has: that of its type, or of an emulated tier, which
    takes a multiple of this machine's seconds."""
    tier = tier_of(file, device)
    if tier is None:
        return file.cluster.type_share(device)
    return 1.0 / max(1.0, tier.stretch[task_of(device)])


def tier_of(file: PipelineFile, device: str) -> TierDevices | None:
    """Return the tier of a seat's device, such as "scan@handheld"; None: it is of no tier."""
    return file.cluster.tier(device.partition("@")[2])


def emulated_executor(
    live: Live,
    node: str,
    pipeline: Pipeline,
    profile: ProfileTable,
    rng: np.random.Generator,
    device: str,
) -> EmulatedExecutor:
    """Return an executor that waits for the profiled latencies of the device or device type."""

    def make(key: str) -> Emulated:
        variant = variant_of(pipeline, key)
        children, one_of = pipeline.task(variant.task).children, pipeline.branches == "untied"
        return Emulated(profile, variant, children, rng, device=device, one_of=one_of)

    def load_s(key: str) -> float:
        task, variant = variant_id(key)
        return profile.entry(task, variant, device).load_s

    return EmulatedExecutor(make, load_s, live.post_at(node), node_clock())


def shared_cpu(file: PipelineFile, host: str, parts: int) -> SharedCpu | None:
    """Return the CPU time that the workers of a process share; None where the process has a core to
    itself, or its device is no CPU."""
    rate = file.cluster.share * parts
    return SharedCpu(parts, rate) if host == "cpu" and (parts > 1 or rate < 1.0) else None


def charged_of(cpu: SharedCpu | None, part: int) -> Callable[[], float]:
    """Return a function that returns the CPU seconds which a part's last batch was charged."""
    return (lambda: 0.0) if cpu is None else partial(cpu.charged_s, part)


def model_maker(
    file: PipelineFile, device: str, cpu: SharedCpu | None, part: int
) -> Callable[[str], Operator]:
    """Return a factory of operators by "task/variant" or setting; those with limits run in own
    processes. Batches take as long as the device's share of a core needs, and keep to ``part`` of
    the ``cpu``.

    On an emulated tier a batch is charged as profilers charge it (``core_clock.py``): its operator
    may wait for something else than a core. One in a process of its own is charged what it takes.
    """
    share = share_of(file, device)
    in_thread_s = time.thread_time if tier_of(file, device) is None else without_core_waits_s

    def make(key: str) -> Operator:
        variant = setting_of(file, key)
        apart = limited(variant)
        made: Operator = (
            Isolated(variant, file.path) if apart else Warmed(load_operator(variant), variant)
        )
        if share < 1.0:
            made = PaidOperator(made, share, time.monotonic if apart else in_thread_s)
        return made if cpu is None else PartOperator(made, cpu, part, apart=apart)

    return make


def setting_of(file: PipelineFile, key: str) -> Variant:
    """Return the variant of "task/variant", or that of a setting with its knobs filled in."""
    if file.sessions is not None:
        return file.sessions.variant(file.pipeline, key)
    return variant_of(file.pipeline, key)


def limited(variant: Variant) -> bool:
    """Return whether the variant has a time or memory limit."""
    return variant.time_limit_s is not None or variant.memory_limit_bytes is not None
