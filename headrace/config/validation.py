"""Check that everything a pipeline file names can be loaded here, and that its workers suffice."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control.policies import POLICIES, policy_named, spec_of
from control.policies.option_fields import DISCRETISATION, LOADS, PRICE, STEPS, VIOLATION
from control.policies.solvers import solve
from control.problem.candidates import paths
from control.problem.problem import PlanError, Problem, Unplannable
from headrace.config.cluster import Cluster
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import load_profile, planning_profile
from headrace.config.sections import pipeline_source
from headrace.config.session_sections import space_counts
from headrace.config.user_functions import load_combine, load_scorer, load_split, load_workload
from headrace.errors import PipelineError, Unfeasible
from headrace.machine import runs_mps
from operators.models.loading import load_operator
from operators.models.model_errors import ModelError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Policy, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A valid pipeline file. ``infeasible``: the binding constraint, by policy. ``warnings``:
    permitted settings that are probably mistakes."""

    file: PipelineFile
    profiled: tuple[str, ...]  # "task/variant"
    infeasible: dict[str, str]
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return a summary of the file as JSON."""
        pipeline = self.file.pipeline
        return {
            "valid": True,
            "pipeline": pipeline.name,
            "slo_ms": pipeline.slo_s * 1e3,
            "tasks": {t.name: [v.name for v in t.variants] for t in pipeline.tasks},
            "policy": pipeline.policy,
            "policies": [policy.name for policy in pipeline.policies],
            "devices": dict(self.file.cluster.devices),
            "share": self.file.cluster.share,
            "tasks_per_device": self.file.cluster.tasks_per_device,
            "profiled": list(self.profiled),
            "infeasible": self.infeasible,
            "warnings": list(self.warnings),
            **self._space(),
        }

    def _space(self) -> dict[str, Any]:
        """Return the size of the sessions' search space, {} without one."""
        sessions = self.file.sessions
        return {} if sessions is None else {"space": space_counts(sessions.space)}


def examined(file: PipelineFile) -> Examined:
    """Load profiles, functions and operator classes (no weights), and try every policy.

    Raises ``PipelineError`` or ``ModelError`` for anything that cannot be loaded.
    """
    table = load_profile(file)
    load_combine(file.pipeline)
    load_split(file.pipeline)
    if file.pipeline.labels:
        load_scorer(file.pipeline.labels)
    if file.workload:
        load_workload(file)
    _load_operators(file)
    return Examined(
        file=file,
        profiled=tuple(dict.fromkeys(e.key for e in table.entries)),
        infeasible=_infeasible(file, table.at_share(file.cluster.share)),
        warnings=(
            *too_short(file.pipeline),
            *unmoved(file.pipeline),
            *blind_to_sizes(file.pipeline),
            *without_effect(file.pipeline),
            *unprofiled(file, table),
            *unmeasured(file, table),
            *unkept(file.cluster, mps=runs_mps()),
        ),
    )


def _load_operators(file: PipelineFile) -> None:
    """Raise the errors of all variants' operators as one, each with the line of its operator."""
    errors: list[ModelError] = []
    lines = pipeline_source(file.path)
    for variant in (v for task in file.pipeline.tasks for v in task.variants):
        try:
            load_operator(_example(file, variant))
            _check_sample(file, variant)
        except ModelError as error:
            place = ("tasks", variant.task, "variants", variant.name, "operator")
            found = f"{file.path}:{lines.line(place)}: {error}"
            errors.append(type(error)(found, error.trace))
    if errors:
        message = "\n".join(map(str, errors))
        raise type(errors[0])(message, errors[0].trace) from errors[0]


def _example(file: PipelineFile, variant: Variant) -> Variant:
    """Return the variant with the first option of each of its knobs, if it has any."""
    if file.sessions is None:
        return variant
    return file.sessions.filled(variant, file.sessions.space.named(0))


def _check_sample(file: PipelineFile, variant: Variant) -> None:
    if variant.warm_up and not Path(variant.warm_up).is_file():
        raise PipelineError(
            f"{file.path}: the warm_up of {variant.key} names {variant.warm_up}, which is no file; "
            "correct the path, which is relative to the pipeline file"
        )


def too_short(pipeline: Pipeline) -> list[str]:
    """Return a sentence if the hops of the longest path take all of the SLO or of an SLO class."""
    hops = max(map(len, paths(pipeline.tasks).values())) + 1
    hops_s = hops * pipeline.comm_s
    named = {"slo": pipeline.slo_s} | {
        f"slo_classes.{name}": slo_s for name, slo_s in pipeline.slo_classes.items()
    }
    return [
        f"{name} is {slo_s * 1e3:g} ms, and the {hops} hops of the longest path alone take "
        f"{hops_s * 1e3:g} ms (comm: {pipeline.comm_s * 1e3:g}ms): every query will be late or "
        "dropped; raise it"
        for name, slo_s in named.items()
        if slo_s <= hops_s
    ]


def unmoved(pipeline: Pipeline) -> list[str]:
    """Return a sentence if `plan_by: measured` does not change the plans of some policies."""
    if pipeline.labels is None or pipeline.labels.plan_by != "measured":
        return []
    specs = [(each.name, spec_of(each.kind)) for each in _tried(pipeline, profiled=True)]
    names = [name for name, spec in specs if not (spec.mixes_variants or spec.sessions)]
    if not names:
        return []
    return [
        f"labels.plan_by is measured, and under {', '.join(names)} a task runs one variant: "
        "nothing measured tells that another is better, so plans stay; name a policy that mixes "
        "variants, as loki does"
    ]


def blind_to_sizes(pipeline: Pipeline) -> list[str]:
    """Return a sentence if queries have sizes and nothing in the pipeline dispatches by them."""
    policy = policy_named(pipeline, pipeline.policy)
    if pipeline.size is None or policy is None or spec_of(policy.kind).dispatch:
        return []
    if any(task.dispatch for task in pipeline.tasks):
        return []
    return [
        f"queries have sizes, and {policy.name} does not look at the size of a query: it plans by "
        "the mean and the quantiles over the distribution of sizes; kairos sends each query to a "
        "device by its size"
    ]


def unkept(cluster: Cluster, *, mps: bool) -> list[str]:
    """Return a sentence for each GPU of which the pipeline has a share that nothing keeps; ``mps``:
    NVIDIA MPS runs here and keeps it."""
    shared = [name for name, _ in cluster.devices if cluster.gpu_percentage(name) is not None]
    hosts = dict.fromkeys(map(cluster.host_device, shared))
    share = cluster.share * cluster.tasks_per_device
    return [] if mps else [
        f"cluster.share is {share:g}, and nothing keeps workers to that part of {host} unless "
        "NVIDIA MPS runs on their machine: plans count on it, and other programs there may get "
        "less; start MPS with `nvidia-cuda-mps-control -d`"
        for host in hosts
    ]  # fmt: skip


def without_effect(pipeline: Pipeline) -> list[str]:
    """Return a sentence for each policy option that the kind or another option makes
    ineffective."""
    found = []
    for policy in pipeline.policies:
        said, spec = f"policy {policy.name!r}: ", spec_of(policy.kind)
        if policy.replicas and policy.kind in POLICIES and spec.plan != POLICIES["static"].plan:
            found.append(
                f"{said}replicas has no effect, since the policy chooses them; tasks.<task>."
                "replicas bounds them"
            )
        if LOADS.of(policy) and len(pipeline.tasks) > 1:
            found.append(
                f"{said}loads has no effect, since the tables of several tasks are made for what "
                "the plan sends to each"
            )
        if not spec.choose:
            continue
        if policy.batch_delay_s is not None:
            found.append(f"{said}batch_delay has no effect, since its tables say when a batch runs")
        if VIOLATION.of(policy) is not None and PRICE.of(policy) > 0:
            found.append(f"{said}price has no effect, since violation finds one; leave one out")
        by_model = DISCRETISATION.of(policy) != DISCRETISATION.default
        if by_model and STEPS.of(policy) != STEPS.default:
            found.append(f"{said}steps has no effect, since it is for fixed-length discretisation")
    return found


def unprofiled(file: PipelineFile, table: ProfileTable) -> list[str]:
    """Return a sentence if the policy in force plans by a profile, and the file has none."""
    policy = policy_named(file.pipeline, file.pipeline.policy)
    if table.entries or policy is None:
        return []
    spec = spec_of(policy.kind)
    if not spec.needs_profile or spec.sessions:
        return []
    return [
        f"policy {policy.name!r} plans by a profile, and the file has none: `up`, `plan` and "
        f"`simulate` refuse it; run `headrace profile {file.path.name}` and name its profile under "
        "profiles"
    ]


def unmeasured(file: PipelineFile, table: ProfileTable) -> list[str]:
    """Return a sentence for each batch of a policy that is above the largest measured one."""
    if file.pipeline.size is not None:
        return []  # what was measured are sizes
    found = []
    for policy in _tried(file.pipeline, profiled=bool(table.entries)):
        if spec_of(policy.kind).needs_profile:
            continue  # it chooses batches among the measured ones
        for variant in (v for task in file.pipeline.tasks for v in task.variants):
            batch = policy.batch.get(variant.key, variant.batch)
            for entry in table.entries:
                most = entry.latency[-1].batch
                if entry.key == variant.key and most < batch:
                    found.append(
                        f"policy {policy.name!r} runs {variant.key} in batches of up to {batch}, "
                        f"measured up to {most} on {entry.device}: `plan` and `simulate` fail "
                        "where it has workers; lower the batch or run `headrace profile` with "
                        f"--batches up to {batch}"
                    )
    return found


def check_plannable(file: PipelineFile) -> None:
    """Raise ``Unfeasible`` if the file's policy has no plan for this cluster at any demand, and
    ``PipelineError`` if it cannot plan this pipeline on any.

    Called before the processes start, because they would wait for a plan.
    """
    policy = policy_named(file.pipeline, file.pipeline.policy)
    if policy is None:  # reading the file refuses this
        return
    try:
        solve(policy.kind, _problem(file, planning_profile(file), policy))
    except Unplannable as error:
        raise PipelineError(f"{file.path}: policy {policy.name!r}: {error}") from error
    except PlanError as error:
        raise Unfeasible(f"policy {policy.name!r}: {error}") from error


def _infeasible(file: PipelineFile, table: ProfileTable) -> dict[str, str]:
    if file.sessions is not None and not file.cluster.workers:
        return {}  # tiers are for sessions, which pipeline policies do not plan
    found = {}
    for policy in _tried(file.pipeline, profiled=bool(table.entries)):
        try:
            allocation = solve(policy.kind, _problem(file, table, policy))
        except Unplannable as error:
            raise PipelineError(f"{file.path}: {error}") from error
        except PlanError as error:  # at any demand: `up` refuses the policy, too
            found[policy.name] = str(error)
            continue
        if not allocation.feasible:
            found[policy.name] = allocation.binding
    return found


def _problem(file: PipelineFile, table: ProfileTable, policy: Policy) -> Problem:
    """Return the planning problem at zero demand."""
    return Problem(
        pipeline=file.pipeline,
        policy=policy,
        slo_s=file.pipeline.slo_s,
        demand_qps=0.0,
        devices=file.cluster.workers,
        profile=table if table.entries else None,
        memory=dict(file.cluster.memory),
        path_accuracy=table.path_accuracy,
        classes=file.pipeline.slo_classes,
    )


def _tried(pipeline: Pipeline, *, profiled: bool) -> list[Policy]:
    """Return the file's policies and the one in force; without a profile, those that need none."""
    first = policy_named(pipeline, pipeline.policy)
    there = pipeline.policies if first in pipeline.policies else (*pipeline.policies, first)
    return [each for each in there if each and (profiled or not spec_of(each.kind).needs_profile)]


def summary_text(found: Examined) -> str:
    """Return the summary as text."""
    file = found.file
    lines = [f"{file.path.name} is right: pipeline {file.pipeline.name}, SLO "
             f"{file.pipeline.slo_s * 1e3:g} ms, policy {file.pipeline.policy}"]  # fmt: skip
    for task in file.pipeline.tasks:
        names = [v.name + ("" if v.key in found.profiled else " (no profile)")
                 for v in task.variants]  # fmt: skip
        children = f" -> {', '.join(task.children)}" if task.children else ""
        lines.append(f"  {task.name}{children}: {', '.join(names)}")
    if file.sessions is not None:
        space = file.sessions.space
        lines.append(f"  {space.configuration_count:,} configurations, {space.plans:,} query plans")
    lines += [
        f"policy {policy!r} is infeasible: {binding}"
        for policy, binding in found.infeasible.items()
    ]
    return "\n".join([*lines, *(f"warning: {each}" for each in found.warnings)])
