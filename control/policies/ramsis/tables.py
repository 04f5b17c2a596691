"""Tables of model and batch by queue and slack, solved in advance, one per load.

    models = models_of(profile, task, "cpu")
    plan = solved(OPTIONS["ramsis"], ask)
    plan.table.choose(queue=3, slack_s=0.08)

Policies by name: ``ramsis-paper`` does what the paper's code does (specified in the module
docstrings of ``mdp``, ``transitions`` and ``mdp_solver``), ``ramsis`` counts queries instead of
decisions, and ``ramsis-variable`` may also serve a part of the queue, which is slower to solve and
better near capacity. Names that end in ``_s`` are in seconds.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from control.policies.option_fields import DISCRETISATION, DISPERSION, PRICE, STEPS
from control.policies.ramsis.arrival_counts import ArrivalCounts
from control.policies.ramsis.burst_lengths import (
    ArrivalStream,
    batches_of,
    by_queries,
    gathered,
    in_runs,
    overrun,
    ways,
)
from control.policies.ramsis.mdp import (
    DecisionProcess,
    Setting,
    fixed_levels,
    model_levels,
    whole_queue,
)
from control.policies.ramsis.mdp_solver import SOLVERS, Objective, Solution, falls_short
from control.policies.ramsis.pareto_models import (
    CandidateModel,
    monotone,
    worthwhile,
    worthwhile_alone,
)
from control.policies.ramsis.transitions import Floats
from control.policies.ramsis.variable_batching import part_of_queue
from control.problem.problem import SelectionError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Policy, Task

PRICES = (0.25, 4096.0)  # prices of a late query, tried in the search for a violation budget
HALVINGS = 12
APART = 0.01  # in expected accuracy: neighbours in a grid differ by less
FINEST = 1 / 128  # of their load: neighbours in a grid are never closer
OVERRUN = 0.5  # expected violation above which no table keeps up


@dataclass(frozen=True, slots=True)
class TableEntry:
    """Serve the ``batch`` queries with the earliest deadlines with ``model``."""

    model: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Decisions for one load by [n - 1][j], n up to N and N + 1 for more.

    ``model`` is an index into ``models``. A batch of N + 1 stands for the whole queue. The table is
    made for queries that arrive at each worker in runs of ``run``.
    """

    qps: float
    models: tuple[str, ...]
    levels_s: tuple[float, ...]
    model: tuple[tuple[int, ...], ...]
    batch: tuple[tuple[int, ...], ...]
    run: int = 1

    def choose(self, queue: int, slack_s: float) -> TableEntry:
        """Return the decision for a queue's length (from 1) and its earliest deadline's slack."""
        if queue < 1:
            raise SelectionError(f"a queue of {queue} has nothing to serve; wait for a query")
        model, batch = self.decision(queue, slack_s)
        return TableEntry(self.models[model], batch)

    def decision(self, queue: int, slack_s: float) -> tuple[int, int]:
        """Return the index of the model and the batch, as ``choose``, unchecked."""
        full = len(self.model)
        at = min(queue, full) - 1
        level = max(bisect_right(self.levels_s, slack_s) - 1, 0) if queue < full else 0
        batch = self.batch[at][level]
        return self.model[at][level], queue if batch == full else batch

    def decisions(self) -> list[list[Any]]:
        """Return [[queue, slack index, model, batch], ...]; the full queue last, at index 0."""
        full = len(self.model)
        return [
            [n, j, self.models[model], batch]
            for n, (models, batches) in enumerate(zip(self.model, self.batch, strict=True), start=1)
            for j, (model, batch) in enumerate(zip(models, batches, strict=True))
            if n < full or j == 0
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options by which a policy makes its tables."""

    objective: Objective
    front: str = "every-batch"  # a key of ``FRONTS``
    batching: str = "whole-queue"
    discretisation: str = "fixed-length"
    steps: int = 100  # of slack: the paper's D
    solver: str = "value-iteration"


BATCHING: Mapping[str, Callable[[Setting], DecisionProcess]] = {
    "whole-queue": whole_queue,
    "variable": part_of_queue,
}
# The latencies by which a model is Pareto-optimal beside its accuracy.
FRONTS: Mapping[str, Callable[[Sequence[CandidateModel]], tuple[CandidateModel, ...]]] = {
    "every-batch": worthwhile,
    "single-query": worthwhile_alone,
}
OPTIONS: Mapping[str, Options] = {
    "ramsis-paper": Options(objective=Objective(per="decision"), front="single-query"),
    "ramsis": Options(objective=Objective(per="query")),
    "ramsis-variable": Options(
        objective=Objective(per="query"), batching="variable", solver="policy-iteration"
    ),
}


DEFAULT = "ramsis"  # the kind whose options apply to the tables of other kinds


def options_for(kind: str, policy: Policy) -> Options:
    """Return how the tables of a kind are made under a policy; raise ``SelectionError``."""
    usual = OPTIONS.get(kind, OPTIONS[DEFAULT])
    dispersion = DISPERSION.of(policy)
    if usual.batching == "variable" and dispersion != 1:
        raise SelectionError(
            f"policy {policy.name!r}: variable batching is for Poisson arrivals, and dispersion is "
            f"{dispersion:g}; use ramsis, or a dispersion of 1"
        )
    return replace(
        with_price(usual, PRICE.of(policy)),
        discretisation=DISCRETISATION.of(policy),
        steps=STEPS.of(policy),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The input for a table: models as profiled, in any order.

    ``runs`` are the permitted run lengths, of which the best is taken.
    """

    models: tuple[CandidateModel, ...]
    slo_s: float
    workers: int
    qps: float
    dispersion: float = 1.0
    runs: tuple[int, ...] = (1,)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SelectionPlan:
    """A table and its expected figures: fractions of 1, by its own model of the queue.

    ``feasible``: the workers can carry the load in time.
    """

    table: Table
    feasible: bool
    expected_accuracy: float
    expected_violation: float
    price: float
    states: int
    actions: int
    sweeps: int
    solver: str
    values: Floats  # a start for the solve of a similar load


def solved(options: Options, ask: Ask, start: SelectionPlan | None = None) -> SelectionPlan:
    """Return the best table; ``start`` is the plan of a similar load, to start from its values.

    Raises ``SelectionError`` for invalid input, or if no query could be served in time.
    """
    if len(ask.runs) == 1:
        return _solved(options, ask, ask.runs[0], start)
    models = [monotone(model) for model in ask.models]
    stream = ArrivalStream(qps=ask.qps, workers=ask.workers, slo_s=ask.slo_s)
    among = ways(models, stream, ask.runs)
    if not among:
        return _solved(options, ask, 1, start)  # raises the error
    first, *others = among
    if not first.alone:
        return _solved(options, ask, overrun(models, stream, among).run, start)
    best = _solved(options, ask, first.run, start)
    for way in others:
        if way.at_most <= _worth(options, best):
            break
        if not _falls_short(options, ask, way.run, _worth(options, best)):
            best = max(best, _solved(options, ask, way.run, start), key=partial(_worth, options))
    if best.expected_violation > OVERRUN:
        return _solved(options, ask, overrun(models, stream, among).run, start)
    return best


def _worth(options: Options, plan: SelectionPlan) -> float:
    return options.objective.mean(plan.expected_accuracy, plan.expected_violation)


def _falls_short(options: Options, ask: Ask, run: int, worth: float) -> bool:
    process = BATCHING[options.batching](setting_for(options, ask, run))
    return falls_short(process, options.objective, worth)


def _solved(options: Options, ask: Ask, run: int, start: SelectionPlan | None) -> SelectionPlan:
    """Return the best table for runs of that length."""
    setting = setting_for(options, ask, run)
    process = BATCHING[options.batching](setting)
    known = None
    if start is not None and start.table.run == run and start.table.levels_s == setting.levels_s:
        known = start.values
    solution = SOLVERS[options.solver](process, options.objective, known)
    return SelectionPlan(
        table=_table(setting, process, solution, run),
        feasible=ask.qps <= setting.capacity_qps(),
        expected_accuracy=solution.worth.accuracy,
        expected_violation=solution.worth.violation,
        price=options.objective.price,
        states=setting.states,
        actions=process.actions,
        sweeps=solution.sweeps,
        solver=options.solver,
        values=solution.values,
    )


def solved_within(options: Options, ask: Ask, violation: float) -> SelectionPlan:
    """Return the highest accuracy with an expected violation of at most ``violation``.

    The price of a late query is the budget's multiplier; bisection finds the lowest price that
    keeps the budget. Of all deterministic tables, this finds those on the hull of accuracy against
    violation. If no price keeps the budget, return the plan of the highest one, not ``feasible``.
    """
    if not 0 <= violation <= 1:
        raise SelectionError(f"a violation budget of {violation:g} is no fraction; give 0..1")
    plan = solved(with_price(options, 0.0), ask)
    if plan.expected_violation <= violation:
        return plan
    low, high = PRICES
    kept = solved(with_price(options, high), ask, plan)
    if kept.expected_violation > violation:
        return replace(kept, feasible=False)
    ask = replace(ask, runs=(kept.table.run,))
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        plan = solved(with_price(options, middle), ask, kept)
        if plan.expected_violation <= violation:
            kept, high = plan, middle
        else:
            low = middle
    return kept


def next_load(
    plans: Sequence[SelectionPlan], wanted: Sequence[float], apart: float = APART
) -> float | None:
    """Return the next load to solve for in a grid; None where the grid is complete.

    The missing loads of ``wanted`` come first, in their order, then one between neighbours that are
    not close. Neighbours are close if their expected accuracy differs by less than ``apart``, or
    their load by at most 1/128.
    """
    known = {plan.table.qps for plan in plans}
    missing = next((qps for qps in wanted if qps not in known), None)
    if missing is not None:
        return missing
    for below, above in pairwise(plans):
        gap = above.table.qps - below.table.qps
        differ = abs(above.expected_accuracy - below.expected_accuracy) >= apart
        if differ and gap > FINEST * above.table.qps:
            return below.table.qps + gap / 2
    return None


def joined(plans: Sequence[SelectionPlan], plan: SelectionPlan) -> tuple[SelectionPlan, ...]:
    """Return the plans with one more, by growing load."""
    return tuple(sorted((*plans, plan), key=lambda each: each.table.qps))


def close_to(plans: Sequence[SelectionPlan], qps: float) -> SelectionPlan | None:
    """Return the start for a solve: the plan of the next lower load, else of the lowest."""
    below = [plan for plan in plans if plan.table.qps <= qps]
    return below[-1] if below else next(iter(plans), None)


def for_load(plans: Sequence[SelectionPlan], qps: float) -> SelectionPlan:
    """Return the plan of the lowest load that is not below ``qps``, else that of the highest."""
    return next((plan for plan in plans if plan.table.qps >= qps), plans[-1])


def models_of(
    profile: ProfileTable, task: Task, device: str, latency: str = "p95", rate: str = ""
) -> tuple[CandidateModel, ...]:
    """Return a task's variants as models, each up to its largest batch; raise ``ProfileError``.

    ``latency`` is the quantile that decides whether a batch is late, ``rate`` that for how long it
    keeps its worker busy ("": the same).
    """
    quantiles = (latency,) if rate in ("", latency) else (latency, rate)
    found = []
    for variant in task.variants:
        entry = profile.entry(task.name, variant.name, device)
        largest = min(variant.batch, entry.largest)
        seconds = (
            tuple(
                profile.latency_s(task.name, variant.name, device, batch, quantile)
                for batch in range(1, largest + 1)
            )
            for quantile in quantiles
        )
        found.append(CandidateModel(variant.name, entry.accuracy, *seconds))
    return tuple(found)


def with_batches(task: Task, policy: Policy) -> Task:
    """Return the task with the largest batches that the policy sets in place of its variants'."""
    variants = (
        replace(each, batch=policy.batch.get(each.key, each.batch)) for each in task.variants
    )
    return replace(task, variants=tuple(variants))


def setting_for(options: Options, ask: Ask, run: int = 1) -> Setting:
    """Return the setting of a table for runs of that length, with the Pareto-optimal models.

    Raises ``SelectionError`` if no query could be served in time.
    """
    models = FRONTS[options.front](
        [whole for model in ask.models if (whole := in_runs(monotone(model), run)) is not None]
    )
    if options.discretisation == "fixed-length":
        levels_s = fixed_levels(ask.slo_s, options.steps)
    else:
        levels_s = model_levels(ask.slo_s, models)
    stream = ArrivalStream(qps=ask.qps, workers=ask.workers, slo_s=ask.slo_s)
    slo_s = ask.slo_s - stream.gathering_s(run)
    return Setting(
        models=models,
        slo_s=slo_s,
        workers=ask.workers * run,
        arrivals=ArrivalCounts(ask.qps, ask.dispersion),
        levels_s=gathered(levels_s, slo_s),
    )


def table_plan_json(
    policy: str, plan: SelectionPlan, seconds: float, wall_seconds: float, table: bool
) -> dict[str, Any]:
    """Return a plan as ``headrace plan --json`` prints it; ``table`` adds the decisions."""
    shown: dict[str, Any] = {
        "policy": policy,
        "demand": plan.table.qps,
        "feasible": plan.feasible,
        "expected_accuracy": plan.expected_accuracy,
        "expected_violation": plan.expected_violation,
        "states": plan.states,
        "actions": plan.actions,
        "solver": {
            "name": plan.solver,
            "seconds": seconds,
            "wall_seconds": wall_seconds,
            "sweeps": plan.sweeps,
        },
    }
    if plan.table.run > 1:
        shown["run"] = plan.table.run
    return {**shown, "decisions": plan.table.decisions()} if table else shown


def _table(setting: Setting, process: DecisionProcess, solution: Solution, run: int) -> Table:
    served = np.take_along_axis(process.served, solution.choice, axis=1).astype(int)
    return Table(
        qps=setting.arrivals.qps,
        models=tuple(model.name for model in setting.models),
        levels_s=setting.levels_s,
        model=by_queries(process.model[solution.choice].tolist(), run),
        batch=batches_of(served.tolist(), run),
        run=run,
    )


def with_price(options: Options, price: float) -> Options:
    """Return the options with this price of a late query."""
    return replace(options, objective=replace(options.objective, price=price))
