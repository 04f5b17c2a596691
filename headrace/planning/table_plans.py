"""``headrace plan`` for policies that choose a model per batch: a table for each demand.

file = read_pipeline_file(Path("image.yaml"))
for made in tables(file, PlanRequest(demands_qps=(200.0, 400.0), policy="ramsis-paper")):
    print(as_json(made, decisions=True))
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from control.policies import policy_named, spec_of
from control.policies.option_fields import DISPERSION, VIOLATION
from control.policies.ramsis.table_builder import TableProblem
from control.policies.ramsis.table_leases import (
    check_models_fit,
    models_of_kind,
    queue_workers,
    run_lengths,
)
from control.policies.ramsis.tables import (
    Ask,
    Options,
    SelectionPlan,
    options_for,
    setting_for,
    table_plan_json,
)
from control.policies.solvers import TABLE, solve
from control.problem.problem import PlanError, SelectionError
from headrace.config.cluster_cost import cost_columns, cost_of, cost_text, prices
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import planning_profile
from headrace.errors import Unfeasible
from headrace.planning.dry_run import PlanRequest
from schemas.pipeline import Policy
from streams.cpu_seconds import spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A table, its policy, and the CPU and wall seconds of making it, the MDP included.

    ``usd_per_h`` is what the workers cost; None: the cluster has no prices.
    """

    policy: str
    plan: SelectionPlan
    cpu_s: float
    wall_s: float
    slo_s: float
    workers: int
    usd_per_h: float | None = None


def selects(file: PipelineFile, asked: PlanRequest) -> bool:
    """Return whether the requested policy chooses a model per batch."""
    policy = policy_named(file.pipeline, asked.policy or file.pipeline.policy)
    return policy is not None and bool(spec_of(policy.kind).choose)


def planned_tables(
    file: PipelineFile, asked: PlanRequest, violation: float | None = None
) -> Iterator[Made]:
    """Yield a table for each demand, in order: the most accurate within ``violation`` if given.

    The table is for the tightest SLO class, as live, and for the workers that the task may have.
    Raises ``PlanError`` for a request that these policies cannot plan, ``ProfileError`` for a
    missing profile, and ``Unfeasible`` if no query can be served in time.
    """
    policy = asked.policy or file.pipeline.policy
    named = policy_named(file.pipeline, policy)
    assert named is not None, "`selects` has found it"
    options = options_for(named.kind, named)
    violation = VIOLATION.of(named) if violation is None else violation
    try:
        ask = _ask(file, asked, named, options)
    except SelectionError as error:
        raise Unfeasible(str(error)) from error
    for demand in asked.demands_qps:
        each, (cpu, wall) = replace(ask, qps=demand), spent()
        try:
            plan: SelectionPlan = solve(
                TABLE,
                TableProblem(kind=named.kind, ask=each, options=options, violation=violation),
            )
        except SelectionError as error:
            raise Unfeasible(str(error)) from error
        cpu_after, wall_after = spent()
        yield Made(
            policy=policy,
            plan=plan,
            cpu_s=cpu_after - cpu,
            wall_s=wall_after - wall,
            slo_s=ask.slo_s,
            workers=ask.workers,
            usd_per_h=_cost(file, ask.workers),
        )


def _cost(file: PipelineFile, workers: int) -> float | None:
    by_type = prices(file.cluster)
    (device, _), *_ = file.cluster.devices
    return cost_of(by_type, {device: workers}) if by_type else None


def as_json(made: Made, decisions: bool) -> dict[str, Any]:
    """Return one line of ``headrace plan --json``; ``decisions`` adds the table."""
    seconds, wall = round(made.cpu_s, 6), round(made.wall_s, 6)
    return {
        **table_plan_json(made.policy, made.plan, seconds, wall, decisions),
        **cost_columns(made.usd_per_h, made.plan.table.qps),
    }


def as_text(made: Made, decisions: bool) -> str:
    """Return a table as text: expected accuracy and violation, its rows with ``decisions``."""
    plan = made.plan
    lines = [
        f"{made.workers} workers at {plan.table.qps:g} queries/s, SLO {made.slo_s * 1e3:g} ms, "
        f"policy {made.policy}: " + ("feasible" if plan.feasible else "not feasible"),
        f"  expected accuracy {plan.expected_accuracy * 100:.3f} %, "
        f"violation {plan.expected_violation * 100:.3g} %",
        f"  {plan.states} states, {plan.actions} pairs of model and batch, {plan.sweeps} sweeps, "
        f"{made.cpu_s:.3f} s",
    ]
    cost = cost_text(made.usd_per_h, plan.table.qps)
    if cost:
        lines.append(f"  costs {cost}")
    if plan.table.run > 1:
        lines.append(f"  sent to each worker in runs of {plan.table.run} queries")
    if plan.price:
        lines.append(
            f"  price of a late query {plan.price:.3g}, chosen to meet the requested violation"
        )
    return "\n".join([*lines, "", *_rows(plan)] if decisions else lines)


def _rows(plan: SelectionPlan) -> list[str]:
    """Return a line per queue length: the slack from which each choice of batch and model holds."""
    table, lines = plan.table, ["  queue  from a slack of"]
    for n in range(1, len(table.model) + 1):
        shown, last = [], None
        for slack in table.levels_s[: 1 if n == len(table.model) else None]:
            choice = table.choose(n, slack)
            if choice != last:
                shown.append(f"{slack * 1e3:g} ms: {choice.batch} x {choice.model}")
            last = choice
        lines.append(f"  {n:5}  {', '.join(shown)}")
    return lines


def _ask(file: PipelineFile, asked: PlanRequest, named: Policy, options: Options) -> Ask:
    pipeline, policy = file.pipeline, asked.policy or file.pipeline.policy
    if len(pipeline.tasks) > 1:
        raise PlanError(
            f"policy {policy!r} plans for one task, and the pipeline has "
            f"{', '.join(pipeline.task_names)}; plan with loki"
        )
    for option, value in (("--comm", asked.comm_s), ("--solver", asked.solver)):
        if value is not None:
            raise PlanError(
                f"policy {policy!r} knows no {option}: its tables start at the worker's queue; "
                "leave it out, and lower --slo by what hops take"
            )
    kinds = file.cluster.devices
    if len(kinds) > 1:
        raise PlanError(
            f"policy {policy!r} plans for workers that are alike, and the cluster has "
            f"{', '.join(device for device, _ in kinds)}; change cluster.devices in the file"
        )
    (device, count), *_ = kinds
    profile, task, workers = planning_profile(file), pipeline.root, asked.devices or count
    slo_s = pipeline.slo_s if asked.slo_s is None else asked.slo_s
    ask = Ask(
        models=models_of_kind(profile, task, (device,), named),
        slo_s=min((slo_s, *pipeline.slo_classes.values())),
        workers=queue_workers(pipeline, named, min(workers, task.most or workers)),
        qps=0.0,
        dispersion=DISPERSION.of(named),
        runs=run_lengths(pipeline, named),
    )
    memory = dict(file.cluster.memory)
    check_models_fit(profile, task.name, (device,), memory, setting_for(options, ask))
    return ask
