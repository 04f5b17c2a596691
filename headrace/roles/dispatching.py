"""Support query sizes in roles: profiles by query, and the dispatcher of an ingress."""

import contextlib
from collections.abc import Iterable, Mapping
from functools import cache

from control.estimation.size_profile import ProfileBySize
from control.policies import policy_named, spec_of
from control.policies.kairos.query_sizes import SizeDistribution
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import planning_profile
from headrace.config.sizes_file import size_distribution
from headrace.config.topology import Share
from headrace.errors import PipelineError
from operators.dispatch.dispatch_profile import device_kind, dispatch_profile
from operators.dispatch.dispatch_queue import CentralQueue, Part
from operators.dispatch.dispatcher import Dispatcher
from operators.dispatch.table_dispatcher import TableDispatcher
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Task, Variant


def planned_by(
    file: PipelineFile, profile: ProfileTable, sizes: SizeDistribution | None = None
) -> ProfileTable | ProfileBySize:
    """Return the profile by which planners plan; for pipelines with sizes, by size.

    Planners begin with the given sizes, else the file's; without known sizes every query counts as
    the largest at first. Raises ``SizesError`` for an invalid file of sizes.
    """
    limit = file.pipeline.size
    if limit is None or not profile.entries:
        return profile
    measured = [each.latency[-1].batch for each in profile.entries]
    largest = min((batch for batch in measured if batch > 1), default=limit.most)
    known = sizes or size_distribution(file)
    return ProfileBySize(
        profile,
        known or SizeDistribution((limit.most,), (1.0,)),
        min(limit.most, largest),
        guessed=known is None,
    )


def per_query(
    file: PipelineFile, profile: ProfileTable, sizes: SizeDistribution | None = None
) -> ProfileTable:
    """Return the profile by query over the sizes that planners begin with (``planned_by``)."""
    found = planned_by(file, profile, sizes)
    return found if isinstance(found, ProfileTable) else found.per_query(found.sizes)


def dispatches(file: PipelineFile) -> bool:
    """Return whether a policy of the file dispatches single queries, or could be set by a command.

    A command can set such a policy if the cluster has device types.
    """
    named = [policy_named(file.pipeline, file.pipeline.policy), *file.pipeline.policies]
    return bool(file.cluster.types) or any(
        spec_of(policy.kind).dispatch for policy in named if policy is not None
    )


def central_queues(
    file: PipelineFile,
    part: Part,
    known: ProfileTable | None = None,
    recent: Iterable[int] = (),
) -> tuple[CentralQueue, ...]:
    """Return the dispatchers of the ingress with this part of the devices (``ingress_part``), of
    which a plan makes one active at most.

    ``known`` is the file's profile if already read, ``recent`` are the sizes of the last queries.
    """
    by_query, alone = dispatches(file), len(file.pipeline.tasks) == 1
    if not (by_query or alone):
        return ()  # without a profile read
    profile = planning_profile(file) if known is None else known
    found: list[CentralQueue] = []
    single = _dispatcher(file, part, profile) if by_query else None
    if single is not None:
        single.recall(recent)
        found.append(single)
    kinds = _kinds(file, file.pipeline.root, profile) if alone else {}
    if kinds:
        found.append(_table_dispatcher(file, part, kinds, profile))
    return tuple(found)


def ingress_part(share: Share, partitions: int) -> Part:
    """Return an ingress's part of the root task's devices.

    The ingresses with a partition of the input topic divide them; the others get no query.
    """
    of = min(share.of, partitions)
    return Part(share.index % of, of)


def _table_dispatcher(
    file: PipelineFile,
    part: Part,
    kinds: Mapping[str, tuple[Variant, str]],
    profile: ProfileTable,
) -> TableDispatcher:
    @cache
    def seconds(kind: str, batch: int) -> float:
        variant, device = kinds[kind]
        return profile.latency_s(variant.task, variant.name, device, batch, "mean")

    pipeline = file.pipeline
    return TableDispatcher(pipeline, tuple(kinds), seconds, part, 2 * pipeline.comm_s)


def _dispatcher(file: PipelineFile, part: Part, profile: ProfileTable) -> Dispatcher | None:
    """Return the dispatcher of single queries; None if the root task is not profiled."""
    variant = _profiled(file, profile)
    if variant is None:
        return None
    names = [name for name, _ in file.cluster.devices]
    names += [each.name for each in file.cluster.types]
    largest = file.pipeline.size.most if file.pipeline.size else 1

    def seconds(type_: str, size: int, quantile: str) -> float:
        return profile.latency_s(variant.task, variant.name, type_, size, quantile)

    types = tuple(name for name in dict.fromkeys(names) if _measured(profile, variant, name))
    return Dispatcher(
        file.pipeline,
        dispatch_profile(types, seconds, largest, file.cluster.base, size_distribution(file)),
        part,
        round_trip_s=2 * file.pipeline.comm_s,
    )


def task_dispatcher(
    file: PipelineFile, task: str, number: int, known: ProfileTable | None = None
) -> Dispatcher:
    """Return dispatcher ``number`` of an inner task.

    Raises ``PipelineError`` if the task has no dispatcher, or no variant with a profile.
    """
    found = next((each for each in file.pipeline.dispatched if each.name == task), None)
    if found is None:
        raise PipelineError(
            f"{file.path}: task {task!r} has no dispatcher; add `dispatch: kairos` to it, or name "
            "one that has"
        )
    profile = planning_profile(file) if known is None else known
    kinds = _kinds(file, found, profile)
    if not kinds:
        raise PipelineError(
            f"{file.path}: the dispatcher of task {task!r} needs the latencies of its variants, "
            "and none is profiled on the cluster's devices; run `headrace profile`"
        )

    def seconds(kind: str, size: int, quantile: str) -> float:
        variant, device = kinds[kind]
        return profile.latency_s(task, variant.name, device, size, quantile)

    size = file.pipeline.size
    return Dispatcher(
        file.pipeline,
        dispatch_profile(tuple(kinds), seconds, size.most if size else 1, by_variant=True),
        Part(number, file.pipeline.dispatchers),
        round_trip_s=2 * file.pipeline.comm_s,
        task=found,
    )


def _kinds(file: PipelineFile, task: Task, profile: ProfileTable) -> dict[str, tuple[Variant, str]]:
    """Return the kinds of a task's devices, each a profiled variant on a device of the cluster."""
    names = dict.fromkeys(
        [*dict(file.cluster.devices), *(each.name for each in file.cluster.types)]
    )
    return {
        device_kind(name, variant.name): (variant, name)
        for variant in task.variants
        for name in names
        if _measured(profile, variant, name)
    }


def _profiled(file: PipelineFile, profile: ProfileTable) -> Variant | None:
    """Return the root's most accurate profiled variant; dispatching policies run it everywhere."""
    root = file.pipeline.root
    known = {(e.task, e.variant): e.accuracy for e in profile.entries}
    there = [v for v in root.variants if (root.name, v.name) in known]
    return max(there, key=lambda v: known[root.name, v.name], default=None)


def _measured(profile: ProfileTable, variant: Variant, device: str) -> bool:
    with contextlib.suppress(ProfileError):
        profile.entry(variant.task, variant.name, device)
        return True
    return False
