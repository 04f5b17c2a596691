"""Leases of the policies that choose a model per batch.

Every worker holds all variants of the only task and reads one slot, so that queries go round robin,
one by one or in runs. Its lease names the variant with the highest throughput at its best batch.
That variant is loaded first, runs until there are tables, and determines the load that ingress may
admit.

If queries go one by one, a queue waits for a batch about as long as its own, so a batch may take at
most half of the SLO. In runs, ingress keeps queues as short as the rest of the SLO permits
(control/per_query/run_admission.py), and the batch is the one that serves most in an overload.
"""

from collections.abc import Iterable, Mapping

from control.per_query.run_admission import admits_by_turn
from control.policies import spec_of
from control.policies.option_fields import DISPERSION, LONGEST_RUN
from control.policies.ramsis.burst_lengths import SAVING, ArrivalStream, sustained_qps
from control.policies.ramsis.mdp import Setting
from control.policies.ramsis.pareto_models import CandidateModel
from control.policies.ramsis.tables import Ask, models_of, options_for, setting_for, with_batches
from control.problem.problem import (
    Allocation,
    Problem,
    Replicas,
    SelectionError,
    Unplannable,
    Unprofiled,
)
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Policy, Task

CENTRAL_LENGTHS = tuple(range(1, 33))  # runs by which the lease of a central queue is chosen
HOPS = 3  # from producer to ingress to worker to egress
ONE_BY_ONE = (1,)


def allocate(problem: Problem) -> Allocation:
    """Return all workers with the same lease.

    Raises ``Unplannable`` for pipelines that these policies cannot plan.
    """
    pipeline, policy = problem.pipeline, problem.policy
    profile = _checked_profile(problem)
    if not problem.devices:
        return Allocation((), False, "no usable worker; start one")
    ask = _ask(problem, profile)
    setting = setting_for(options_for(policy.kind, policy), ask)
    task = pipeline.root.name
    check_models_fit(profile, task, problem.devices, problem.memory, setting)
    if spec_of(policy.kind).central_queue:
        model, batch = central_lease(setting)
    else:
        model, batch = lease_batch(setting, run_lengths(pipeline, policy), admits_by_turn(pipeline))
    beside = tuple(each.name for each in setting.models if each != model)
    replicas = Replicas(
        task=task, variant=model.name, batch=batch, count=ask.workers, beside=beside
    )
    capacity = setting.capacity_qps()
    if problem.demand_qps <= capacity:
        return Allocation((replicas,))
    binding = (
        f"{problem.demand_qps:.4g} queries/s are more than the {capacity:.4g} that "
        f"{ask.workers} workers serve in time; start more workers or lower the load"
    )
    return Allocation((replicas,), False, binding)


def _checked_profile(problem: Problem) -> ProfileTable:
    """Return the profile; raise ``Unplannable`` for pipelines that these policies cannot plan."""
    pipeline, policy = problem.pipeline, problem.policy
    if len(pipeline.tasks) > 1:
        raise Unplannable(
            f"policy {policy.name!r} plans for one task, and the pipeline has "
            f"{', '.join(pipeline.task_names)}; plan with loki, and write `selection: ramsis` "
            "under a task"
        )
    if problem.profile is None:
        raise Unprofiled(
            f"policy {policy.name!r} needs a profile of every variant; run `headrace profile`"
        )
    return problem.profile


def _ask(problem: Problem, profile: ProfileTable) -> Ask:
    pipeline, policy, task = problem.pipeline, problem.policy, problem.pipeline.root
    try:
        models = models_of_kind(profile, task, problem.devices, policy)
    except ProfileError as error:
        raise SelectionError(f"policy {policy.name!r} cannot be planned: {error}") from error
    return Ask(
        models=models,
        slo_s=whole_budget_s(pipeline, problem.slo_s),
        workers=min(len(problem.devices), task.slots),
        qps=0.0,
        dispersion=DISPERSION.of(policy),
    )


def whole_budget_s(pipeline: Pipeline, slo_s: float) -> float:
    """Return the SLO less the hops, for a single task; raise ``SelectionError`` if none is left."""
    left_s = slo_s - HOPS * pipeline.comm_s
    if left_s <= 0:
        raise SelectionError(
            f"the SLO of {slo_s * 1e3:g} ms leaves nothing beside {HOPS} hops of "
            f"{pipeline.comm_s * 1e3:g} ms; raise the SLO or correct comm"
        )
    return left_s


def models_of_kind(
    profile: ProfileTable, task: Task, devices: tuple[str, ...], policy: Policy
) -> tuple[CandidateModel, ...]:
    """Return a task's models on devices of one kind, by the policy's quantiles and batches.

    Raises ``SelectionError`` if the devices differ, ``ProfileError`` for an unmeasured variant.
    """
    kinds = sorted(set(devices))
    own = with_batches(task, policy)
    found = {models_of(profile, own, each, policy.latency, policy.rate) for each in kinds}
    if len(found) > 1:
        raise SelectionError(
            f"one table is for workers that are alike, and those of task {task.name!r} stand on "
            f"{', '.join(kinds)}; use workers of one kind"
        )
    return found.pop()


def run_lengths(pipeline: Pipeline, policy: Policy) -> tuple[int, ...]:
    """Return the run lengths in which ingress may send to the workers of the root task.

    There are several only if these workers alone decide what runs and one ingress sends to them:
    runs of several ingresses would collide.
    """
    if len(pipeline.tasks) > 1 or pipeline.ingress > 1:
        return ONE_BY_ONE
    return tuple(range(1, LONGEST_RUN.of(policy) + 1))


def lease_batch(
    setting: Setting, lengths: tuple[int, ...], admitted: bool
) -> tuple[CandidateModel, int]:
    """Return the lease's model and batch for these permitted run lengths.

    ``admitted``: ingress refuses queries that a worker is planned to have no time for.
    """
    if lengths == ONE_BY_ONE or setting.workers == 1:
        return most_throughput(setting)
    if not admitted:
        return most_throughput(setting, SAVING)
    stream = ArrivalStream(qps=0.0, workers=setting.workers, slo_s=setting.slo_s)
    most_qps, _, batch, model = max(
        (
            (sustained_qps(stream, batch, seconds), model.accuracy, -batch, model)
            for model in setting.models
            for batch, seconds in enumerate(model.latency_s[: max(lengths)], start=1)
        ),
        key=lambda each: each[:3],
    )
    return (model, -batch) if most_qps > 0 else most_throughput(setting)


def central_lease(setting: Setting) -> tuple[CandidateModel, int]:
    """Return the lease's model and batch for a central queue: those that serve most in overload."""
    return lease_batch(setting, CENTRAL_LENGTHS, admitted=True)


def queue_workers(pipeline: Pipeline, policy: Policy, workers: int) -> int:
    """Return the workers per table: every ingress has its own central queue."""
    if not spec_of(policy.kind).central_queue:
        return workers
    return max(workers // pipeline.ingress, 1)


def most_throughput(setting: Setting, part: float = 0.5) -> tuple[CandidateModel, int]:
    """Return the model and batch of highest throughput within a part of the SLO.

    The rest of the SLO is for the queue; if no batch fits the part, the whole SLO applies.
    """
    for most in (part, 1.0):
        fitting = [
            (batch / seconds, model.accuracy, -batch, model)
            for model in setting.models
            for batch, seconds in enumerate(model.latency_s, start=1)
            if seconds <= most * setting.slo_s
        ]
        if fitting:
            _, _, batch, model = max(fitting, key=lambda each: each[:3])
            return model, -batch
    raise AssertionError("a setting has a model that serves one query within the SLO")


def check_models_fit(
    profile: ProfileTable,
    task: str,
    devices: Iterable[str],
    memory: Mapping[str, int],
    setting: Setting,
) -> None:
    """Raise ``SelectionError`` if ``memory`` (bytes, by device) cannot hold all models."""
    for device in sorted(set(devices)):
        room = memory.get(device)
        needed = sum(profile.entry(task, m.name, device).memory_bytes for m in setting.models)
        if room is not None and needed > room:
            raise SelectionError(
                f"a worker on {device} is to hold {len(setting.models)} variants of {task!r}, "
                f"which take {needed / 1e6:.0f} MB, and it may use {room / 1e6:.0f} MB; remove "
                "variants or raise cluster.memory"
            )
