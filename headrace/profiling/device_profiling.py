"""``headrace profile``: measure every variant of a pipeline on real devices under full load.

Each (variant, device) is measured in a fresh process, because memory and the first load cannot
be measured twice in one. While it is timed, further processes run the same variant at the same
batch size, one for each other worker of the named devices: a model alone on a machine is faster
than in service.
"""

import contextlib
import importlib.metadata
import importlib.util
import itertools
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from headrace.atomic_file import writable, write_whole
from headrace.config.cluster import Cluster
from headrace.config.pipeline_file import PipelineFile
from headrace.config.user_functions import load_workload, sized_inputs
from headrace.errors import PipelineError
from headrace.machine import cores, cpu_model
from headrace.profiling.device_check import check_devices, check_memory_known
from headrace.profiling.variant_process import Job, NotOnThisDevice, measured_entry
from headrace.terminal import progress
from operators.models.libraries import cuda_index, library
from profiles.measure import Repeats, default_batches
from profiles.measurements import Entry, ProfileError
from profiles.profile_json import profile_text
from profiles.profile_table import ProfileTable
from schemas.pipeline import Variant

LIBRARIES = ("lightgbm", "numpy", "onnxruntime", "scipy", "torch", "torchvision", "transformers")
NOTE = (
    "load_s: second load in a process, libraries imported; memory_bytes: growth of a fresh "
    "process over import, load and one full batch, on cuda of its GPU memory (0: unknown, without "
    "torch); latency: "
    "predict() alone, while busy_devices others run the same variant and batch size"
)


REPEATS = Repeats()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingOptions:
    """Options of profiling: ``batches`` for every variant (None: 1, 2, 4 ... up to the largest that
    the file uses) and ``busy`` further processes (None: one per other worker of the named
    devices, at most one per CPU core)."""

    batches: tuple[int, ...] | None = None
    busy: int | None = None
    repeats: Repeats = REPEATS
    samples: int = 1000  # inputs for accuracy and fan-out
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ``ProfileError`` for numbers out of range."""
        if self.batches is not None and (not self.batches or min(self.batches) < 1):
            raise ProfileError(f"batches are {self.batches}; name numbers from 1, as in 1,2,4")
        if self.busy is not None and self.busy < 0:
            raise ProfileError(f"busy is {self.busy}; it must be 0 or more")
        if self.samples < 1:
            raise ProfileError(f"samples are {self.samples}; accuracy needs 1 or more")


def profile(
    file: PipelineFile,
    devices: Sequence[str],
    out: Path,
    settings: ProfilingOptions = ProfilingOptions(),
) -> ProfileTable:
    """Measure every variant on each device (none named: the cluster's) and write ``out``.

    A variant that does not run on a device has no entry for it, and no plan uses it there; the
    provenance has the reason under ``left_out``. Raises ``PipelineError`` (no workload, no such
    device, a process that died, no variant that runs on the devices), ``click.UsageError`` (``out``
    cannot be written) and ``ProfileError`` (an operator whose outputs cannot be scored or counted).
    """
    load_workload(file)
    devices = real_devices(file.cluster, devices)
    writable(out, "--out")
    check_devices(file.cluster, devices)
    torch = importlib.util.find_spec("torch") is not None
    check_memory_known(file.cluster, devices, torch)
    planned = jobs(file, devices, settings)
    load_before = load_average()
    entries, left_out = _measured(file, devices, planned, settings.busy)
    if not entries:
        why = next(iter(left_out.values()))
        raise PipelineError(f"no variant runs on {', '.join(devices)}: {why}")
    origin = provenance(file, devices, settings)
    # Load by other programs distorts latencies; these two make it visible.
    origin["load_average"] = {"before": load_before, "after": load_average()}
    origin["left_out"] = left_out
    table = ProfileTable(file.pipeline.name, tuple(entries), origin)
    write_profile(table, out)
    return table


def _measured(
    file: PipelineFile,
    devices: Sequence[str],
    planned: Sequence[Job],
    busy: int | None,
) -> tuple[list[Entry], dict[str, str]]:
    """Return the entries, and for each job whose variant does not run on its device the reason."""
    entries: list[Entry] = []
    left_out: dict[str, str] = {}
    # The steps of a job are its load and each batch size.
    ends = list(itertools.accumulate(1 + len(job.batches) for job in planned))
    with progress("profiling", ends[-1], every_s=0.0) as advance:
        for job, end in zip(planned, ends, strict=True):
            steps = itertools.count(end - 1 - len(job.batches))

            def doing(what: str, steps: Iterator[int] = steps) -> None:
                advance(next(steps), what)

            beside = companions(job.device, devices, file.cluster, cores(), busy)
            try:
                entries.append(measured_entry(job, beside, doing))
            except NotOnThisDevice as error:
                left_out[job.name] = str(error)
        advance(ends[-1], "done")
    return entries, left_out


def write_profile(table: ProfileTable, out: Path) -> None:
    """Write a profile atomically."""
    write_whole(out, profile_text(table))


def real_devices(cluster: Cluster, named: Sequence[str]) -> tuple[str, ...]:
    """Return the devices to measure; raise ``PipelineError`` if emulated ones are named or only
    such exist."""
    if any(cluster.emulated(each) for each in named):
        raise PipelineError(
            "emulated devices wait what a profile says, so they cannot be profiled; "
            "name a real one, as in --device cpu"
        )
    real = tuple(d for d, _ in cluster.devices if not cluster.emulated(d))
    found = tuple(dict.fromkeys(named)) or real
    if not found:
        raise PipelineError(
            "the cluster has emulated devices only; name a real one, as in --device cpu"
        )
    return found


def jobs(file: PipelineFile, devices: Sequence[str], settings: ProfilingOptions) -> list[Job]:
    """Return the jobs, device by device, in the order of the file."""
    return [
        Job(
            file=file,
            task=task,
            variant=variant,
            device=device,
            batches=settings.batches or default_batches(largest_batch(file, variant)),
            repeats=settings.repeats,
            samples=settings.samples,
            seed=settings.seed,
        )
        for device in devices
        for task in file.pipeline.tasks
        for variant in task.variants
    ]


def largest_batch(file: PipelineFile, variant: Variant) -> int:
    """Return the largest batch that the variant or a policy specifies.

    If items have sizes, and the workload makes items of any size for the task, it is the largest
    size.
    """
    size = file.pipeline.size
    if size is not None and sized_inputs(file, variant.task, 1, np.random.default_rng(0)):
        return size.most
    policies = file.pipeline.policies
    return max(variant.batch, *(policy.batch.get(variant.key, 0) for policy in policies))


def companions(
    device: str, devices: Sequence[str], cluster: Cluster, cpus: int, busy: int | None
) -> list[str]:
    """Return the devices of the companion processes that load the machine during a measurement."""
    if busy is not None:
        return [device] * busy
    # Of the workers that share a device by the file's rule one process is busy at a time.
    workers = {name: count // cluster.tasks_per_device for name, count in cluster.devices}
    near_first = sorted(devices, key=lambda name: name != device)
    everyone = [name for name in near_first for _ in range(workers.get(name, 1))]
    return everyone[1 : cpus + 1]  # the first is the measured one


def default_out(file: PipelineFile, devices: Sequence[str]) -> Path:
    """Return the default path of the profile: beside the pipeline file, named by device kind."""
    kinds = dict.fromkeys(
        device.partition(":")[0] for device in real_devices(file.cluster, devices)
    )
    return file.path.parent / f"profile-{'-'.join(kinds)}.json"


def provenance(
    file: PipelineFile, devices: Sequence[str], settings: ProfilingOptions
) -> dict[str, Any]:
    """Return the provenance of a profile: machine, date, settings."""
    return {
        **machine_facts(),
        "gpus": gpu_names(file.cluster, devices),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "repeats": asdict(settings.repeats),
        "busy_devices": {
            device: companions(device, devices, file.cluster, cores(), settings.busy)
            for device in devices
        },
        "samples": settings.samples,
        "seed": settings.seed,
        "note": NOTE,
    }


def gpu_names(cluster: Cluster, devices: Sequence[str]) -> dict[str, str]:
    """Return the model of each GPU among ``devices``, as torch names it."""
    indices = cuda_indices(cluster, devices)
    if not indices or importlib.util.find_spec("torch") is None:
        return {}
    torch = library("torch")
    return {device: torch.cuda.get_device_name(index) for device, index in indices.items()}


def cuda_indices(cluster: Cluster, devices: Sequence[str]) -> dict[str, int]:
    """Return the number that CUDA gives each GPU among ``devices`` or device types."""
    hosts = {device: cluster.host_device(device) for device in devices}
    return {device: cuda_index(host) for device, host in hosts.items() if host.startswith("cuda")}


def machine_facts() -> dict[str, Any]:
    """Return the machine and the versions of Python and the model libraries."""
    return {
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": cores(),
        "python": platform.python_version(),
        "versions": library_versions(),
    }


def load_average() -> float | None:
    """Return the load average of the last minute, in processes; ``None`` if not known."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def library_versions() -> dict[str, str]:
    """Return the version of each installed model library."""
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
