"""The policies: one table by name, for everything that depends on the kind of a policy.

A policy of a pipeline (``schemas.pipeline.Policy``) names its kind; the table has the kind's
planner, rules and options. To add a policy, write its planner in a module or folder here and add a
``PolicySpec`` to ``POLICIES``. A separate package registers a policy as an entry point instead
(``spec.py``, docs/how-to/write-a-policy.md).

This module imports no planner: solvers take most of a second to import, and every role reads the
table.
"""

from collections.abc import Mapping
from typing import Any

from control.policies.compass.session_options import SESSIONS
from control.policies.kairos.dispatch_options import DISPATCH, LEAD
from control.policies.option_fields import (
    ACCURACY_LEAST,
    CENTRAL_TABLES,
    MILP,
    QUICK,
    TABLES,
    TRAFFIC,
)
from control.policies.spec import PolicySpec, installed, installed_names
from control.problem.problem import PlanError
from schemas.pipeline import Pipeline, Policy

# The rules and quantiles of Loki's evaluation, section 6.1, for itself and its baselines.
_AS_LOKI_EVALUATES = {"latency": "p50", "rate": "p50"}
# Every device runs the best variant that fits it; only the mix of devices follows demand.
_ON_EVERY_DEVICE: Mapping[str, Any] = {
    "needs_profile": False,
    "follows_demand": False,
    "solve_s": 0.01,
}

POLICIES: Mapping[str, PolicySpec] = {
    each.name: each
    for each in (
        PolicySpec(
            name="static",
            summary="replicas from the pipeline file, or in proportion to load",
            plan="control.policies.static:allocate",
            quick="control.policies.static:allocate",
            options=(TRAFFIC,),
            needs_profile=False,
            follows_demand=False,
            solve_s=0.01,
        ),
        PolicySpec(
            name="loki",
            summary="hardware and accuracy scaling by a MILP, with the rules that measured best",
            plan="control.policies.loki.allocate:allocate_within_slo",
            quick="control.policies.loki.quick_plan:quick_plan",
            estimate="trend",
            route="balanced",
            drop="reroute",
            # docs/results/loki.md has the costs and benefits of a utilisation of 0.8.
            common={"utilisation": 0.8, "paced": True},
            options=(*MILP, QUICK, ACCURACY_LEAST, *TABLES),
            task_selection=True,
            branches_as_seen=True,
            hardware_mode=True,
            mixes_variants=True,
        ),
        PolicySpec(
            name="loki-paper",
            summary="hardware and accuracy scaling by a MILP, with the rules of the Loki paper",
            plan="control.policies.loki.allocate:allocate",
            estimate="ewma",
            route="most-accurate-first",
            drop="reroute-paper",
            common=_AS_LOKI_EVALUATES,
            options=(*MILP, ACCURACY_LEAST, *TABLES),
            task_selection=True,
            hardware_mode=True,
            mixes_variants=True,
            deviations=(
                "The latency budget of a task includes a part of the time for queues and hops; "
                "in the paper it is the batch alone (`budget: bare`).",
                "Each sending variant has one routing table; in the paper Algorithm 1 makes one "
                "for each worker.",
                "Among equal backup workers Headrace takes the first; the paper takes one at "
                "random.",
                "A new allocation is used only if it serves more, serves more accurately or "
                "needs fewer devices by a margin (hysteresis); the paper always uses it.",
                "A plan changes in steps: a worker gives up its variant once others serve in its "
                "place; the paper applies the plan at once.",
                "If no worker of a task has loaded a variant, half of them begin with one that "
                "loads sooner; in the paper all load the planned one.",
                "The controller replans if demand exceeds the planned demand by a tenth and four "
                "standard errors, if the estimate is far from it, or if the fan-out changes; "
                "the paper replans on a significant change of demand and names no test.",
                "A worker that is slower than others of its kind gets less work, by its own "
                "pace; in the paper all workers of a kind are equal.",
                "The rule `dropping: per-task` drops an item before a batch that would end "
                "beyond the task's budget or the deadline; the paper drops it after the batch.",
                "Ingress refuses queries beyond the plan's capacity (`admission: false` admits "
                "all); the paper has no admission.",
            ),
        ),
        # The paper drops nothing, but a query that is late with every model only delays others.
        PolicySpec(
            name="ramsis",
            summary="model and size of every batch from tables; bursts go to one worker",
            plan="control.policies.ramsis.table_leases:allocate",
            choose="control.policies.ramsis.table_builder:make",
            common={"rate": "p95", "capped": True, "paced": True},
            options=TABLES,
            preset={"longest_run": 32},
            needs_profile=False,
            mixes_variants=True,
        ),
        PolicySpec(
            name="ramsis-paper",
            summary="model and size of every batch from tables, as in the RAMSIS paper",
            plan="control.policies.ramsis.table_leases:allocate",
            choose="control.policies.ramsis.table_builder:make",
            drop="none",
            common={"rate": "p95"},
            options=TABLES,
            needs_profile=False,
            mixes_variants=True,
            deviations=(
                "A worker's load is its own arrivals of the last half second times the workers; "
                "the paper's load monitor counts all arrivals.",
                "The time of hops is subtracted from the SLO; the paper has no hops.",
                "A queue longer than the largest batch is served in several batches; the paper "
                "drops the excess, its code makes one batch of it.",
                "Ingress refuses queries beyond the plan's capacity (`admission: false` admits "
                "all); the paper has no admission.",
            ),
        ),
        PolicySpec(
            name="ramsis-variable",
            summary="as ramsis, but a batch may take only part of the queue",
            plan="control.policies.ramsis.table_leases:allocate",
            choose="control.policies.ramsis.table_builder:make",
            common={"rate": "p95", "capped": True, "paced": True},
            options=TABLES,
            needs_profile=False,
        ),
        PolicySpec(
            name="ramsis-central",
            summary="model and size of every batch from tables for one central queue",
            plan="control.policies.ramsis.table_leases:allocate",
            choose="control.policies.ramsis.central_queue:make",
            central_queue=True,
            common={"rate": "p95", "capped": True, "paced": True},
            options=(*CENTRAL_TABLES, LEAD),
            needs_profile=False,
            mixes_variants=True,
        ),
        # The baselines of Loki's evaluation, both with per-task dropping.
        PolicySpec(
            name="inferline",
            summary="the most accurate variants that fit the SLO, scaled to demand",
            plan="control.policies.inferline:allocate",
            estimate="ewma",
            route="balanced",
            drop="per-task",
            common=_AS_LOKI_EVALUATES,
            options=(*MILP, *TABLES),
            task_selection=True,
            branches_as_seen=True,
            hardware_mode=True,
        ),
        PolicySpec(
            name="proteus",
            summary="accuracy scaling of each task separately, by its own arrivals",
            plan="control.policies.proteus:allocate",
            estimate="ewma",
            drop="per-task",
            common=_AS_LOKI_EVALUATES,
            options=(*MILP, *TABLES),
            task_selection=True,
            mixes_variants=True,
        ),
        # Kairos, which dispatches queries one by one to heterogeneous devices, and its baselines.
        PolicySpec(
            name="kairos",
            summary="queries matched to heterogeneous devices at least cost",
            plan="control.policies.static:allocate",
            quick="control.policies.static:allocate",
            dispatch="control.policies.kairos.dispatch_rules:match",
            withholds=True,
            options=DISPATCH,
            **_ON_EVERY_DEVICE,
        ),
        # The paper has no urgency. It serves late queries; here `late: serve` does.
        PolicySpec(
            name="kairos-paper",
            summary="queries matched to heterogeneous devices at least cost, as the paper does",
            plan="control.policies.static:allocate",
            quick="control.policies.static:allocate",
            dispatch="control.policies.kairos.dispatch_rules:match",
            options=DISPATCH,
            preset={
                "urgency": 0.0,
                "guard": 0.02,
                "considered": 2,
                "prices": "speed",
                "bound": "eq15",
                "pick": "paper",
            },
            **_ON_EVERY_DEVICE,
        ),
        PolicySpec(
            name="fcfs",
            summary="the oldest query to a free device, base types first (Ribbon)",
            plan="control.policies.static:allocate",
            quick="control.policies.static:allocate",
            dispatch="control.policies.kairos.dispatch_rules:first_come",
            options=DISPATCH,
            **_ON_EVERY_DEVICE,
        ),
        PolicySpec(
            name="threshold",
            summary="large queries to base devices, the others to auxiliary ones (DeepRecSys)",
            plan="control.policies.static:allocate",
            quick="control.policies.static:allocate",
            dispatch="control.policies.kairos.dispatch_rules:by_threshold",
            options=DISPATCH,
            **_ON_EVERY_DEVICE,
        ),
        PolicySpec(
            name="earliest",
            summary="every query to the device that will finish it first (Clockwork)",
            plan="control.policies.static:allocate",
            quick="control.policies.static:allocate",
            dispatch="control.policies.kairos.dispatch_rules:earliest_finish",
            options=DISPATCH,
            **_ON_EVERY_DEVICE,
        ),
        # A query plan for every session, by a search that profiles configurations of knobs.
        PolicySpec(
            name="compass",
            summary="a query plan for each session, from a profiling search over knobs and tiers",
            plan="control.policies.compass.session_options:allocate",
            options=SESSIONS,
            sessions=True,
            **_ON_EVERY_DEVICE,
        ),
        PolicySpec(
            name="compass-paper",
            summary="as compass, with the paper's prediction of the latency of whole plans",
            plan="control.policies.compass.session_options:allocate",
            options=SESSIONS,
            sessions=True,
            **_ON_EVERY_DEVICE,
            preset={"surrogate": "plans"},
            deviations=(
                "Waiting sessions get devices by a linear program over classes of equal "
                "sessions; the paper's greedy is `headrace schedule --policy compass-paper`.",
                "Past searches predict accuracy only; in the paper their latency models vote, too.",
                "Running sessions keep their devices; the paper names a cost of migration, "
                "without a formula, by which they may move.",
                "A share reserves a part of a device and is not enforced; the paper limits GPUs "
                "by MPS and MIG.",
                "A device's worker runs all its sessions: those with one setting share a loaded "
                "model and batches, but their shares add up; the paper says that pipelines may "
                "share machines or models, without a rule.",
                "No standby machines start on demand: every device of a tier runs from the "
                "start, with the libraries of its operators imported.",
            ),
        ),
        PolicySpec(
            name="circinus",
            summary="as compass, with the committee and the two-sided test of Circinus v1",
            plan="control.policies.compass.session_options:allocate",
            options=SESSIONS,
            sessions=True,
            **_ON_EVERY_DEVICE,
            preset={"members": "top-k", "test": "two-sided"},
            deviations=(
                "Samples are taken in the order of the workload or of the inputs; v1 draws them "
                "from strata of input features (K-means).",
                "The latency of a plan is composed of its stages; in v1 a surrogate predicts it.",
                "Otherwise as `compass-paper`.",
            ),
        ),
    )
}


def spec_of(kind: str) -> PolicySpec:
    """Return the kind of that name, built in or installed; raise ``PlanError``."""
    found = POLICIES.get(kind) or installed(kind)
    if found is None:
        raise PlanError(f"there is no policy {kind!r}; known are {', '.join(known_kinds())}")
    return found


def known_kinds() -> tuple[str, ...]:
    """Return the names of all kinds: those of the table, then the installed ones."""
    return tuple(dict.fromkeys((*POLICIES, *installed_names())))


def policy_named(pipeline: Pipeline, name: str) -> Policy | None:
    """Return the pipeline's policy of that name, or the kind's default one; None if unknown.

    Raises ``PlanError`` for an installed policy that cannot be loaded.
    """
    for policy in pipeline.policies:
        if policy.name == name:
            return policy
    found = POLICIES.get(name) or installed(name)
    return found.usual if found else None


def plans_sessions(pipeline: Pipeline, name: str) -> bool:
    """Return whether the policy of that name gives every session a query plan of its own."""
    policy = policy_named(pipeline, name) if name else None
    return policy is not None and spec_of(policy.kind).sessions


def fixed_policies(pipeline: Pipeline) -> list[Policy]:
    """Return the file's policies with fixed replicas, in file order."""
    return [p for p in pipeline.policies if p.replicas and not spec_of(p.kind).follows_demand]


def choosing_kinds() -> tuple[str, ...]:
    """Return the kinds whose workers choose a model for each batch: values of `selection`."""
    return tuple(name for name in known_kinds() if spec_of(name).chooses_by_worker)


def selections(pipeline: Pipeline, policy: Policy) -> dict[str, str]:
    """Return the kind of tables that each task's workers follow; tasks without tables are absent.

    A task may request tables beside a policy that decides replicas, if the kind permits it.
    """
    spec = spec_of(policy.kind)
    if spec.choose:
        return {pipeline.root.name: policy.kind}
    if not spec.task_selection:
        return {}
    return {task.name: task.selection for task in pipeline.tasks if task.selection}
