"""What every planner is given, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from profiles.profile import ProfileTable
from schemas.pipeline import Pipeline, Policy, Variant


class PlanError(ValueError):
    """No plan can be made of what was asked; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Which variants should the workers run?

    ``devices`` has one entry for every worker that may be used ("cpu", "cuda:0", "emulated").
    """

    pipeline: Pipeline
    policy: Policy
    slo_s: float
    demand_qps: float  # root queries per second
    devices: tuple[str, ...]
    profile: ProfileTable | None = None
    memory: Mapping[str, int] = field(default_factory=dict)  # device -> bytes one worker may use
    # ("task/variant", child) -> items per item, where workers' reports say other than the profile
    multiplicity: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # "task/variant" from the root to a leaf -> accuracy, where whole paths were measured
    path_accuracy: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    # task -> items per second that arrive there, for planners that look at each task alone
    arriving: Mapping[str, float] = field(default_factory=dict)

    def batch(self, variant: Variant) -> int:
        """The largest batch of a variant under the policy."""
        return self.policy.batch.get(variant.key, variant.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """How many workers run a variant, in batches of at most ``batch``.

    Where the cluster has several kinds of devices, ``device`` is the kind's name and ``on`` are
    the devices that are of it; "" and nothing: any.
    """

    task: str
    variant: str
    batch: int
    count: int
    device: str = ""
    on: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The variant's name in plans and reports: "task/variant"."""
        return f"{self.task}/{self.variant}"

    def may_run_on(self, device: str) -> bool:
        """Whether a device is of the kind."""
        return not self.on or device in self.on


@dataclass(frozen=True, slots=True)
class PathShare:
    """The share of all queries that go over a path of variants, from the root to a leaf task.

    ``path`` holds "task/variant"; ``devices`` the kind of device of each where the cluster has
    several, else nothing. Where branches are tied the shares to each leaf task sum to the share
    that is served, else those to all of them do.
    """

    path: tuple[str, ...]
    share: float
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nearest:
    """What could be met, changing one thing alone; None where no change of it would do."""

    demand_qps: float | None
    slo_s: float | None
    devices: int | None


@dataclass(frozen=True, slots=True)
class SolverRun:
    """How a plan was found. ``gap`` is the proven one, relative; None where nothing is proven.

    Seconds are those of the solver, with the models handed over and without building them.
    """

    solver: str
    gap: float | None
    cpu_s: float = 0.0
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """A planner's answer, in the order of the pipeline; which worker does what is decided later.

    Where it is not ``feasible``, ``binding`` says what stands in the way. What follows is for
    planners that scale accuracy: ``mode`` is "hardware", "accuracy" or "best-effort".
    """

    replicas: tuple[Replicas, ...]
    feasible: bool = True
    binding: str = ""
    mode: str = ""
    accuracy: float | None = None  # of what is served, 0..1; None where nothing is
    served_share: float = 1.0
    shares: tuple[PathShare, ...] = ()
    nearest: Nearest | None = None
    solved: SolverRun | None = None

    @property
    def devices_used(self) -> int:
        """Workers that run a variant."""
        return sum(each.count for each in self.replicas)


BUILT_IN: Mapping[str, Policy] = {
    "static": Policy(name="static"),
    "loki": Policy(
        name="loki",
        kind="loki",
        estimator="trend",
        routing="balanced",
        utilisation=0.8,  # docs/reference/pipeline-file.md says what it costs and brings
        dropping="reroute",
        paced=True,
    ),
    "loki-paper": Policy(
        name="loki-paper",
        kind="loki-paper",
        latency="p50",
        rate="p50",
        estimator="ewma",
        routing="most-accurate-first",
        dropping="reroute-paper",
    ),
    # A model and a batch for every batch, from tables (control/policies/ramsis/tables.py). The
    # paper drops
    # nothing; a query that is late whatever runs now only makes others late.
    "ramsis": Policy(
        name="ramsis", kind="ramsis", rate="p95", capped=True, paced=True, longest_run=32
    ),
    "ramsis-paper": Policy(name="ramsis-paper", kind="ramsis-paper", rate="p95", dropping="none"),
    "ramsis-variable": Policy(
        name="ramsis-variable", kind="ramsis-variable", rate="p95", capped=True, paced=True
    ),
    # The baselines of Loki's evaluation (section 6.1), both with per-task dropping.
    "inferline": Policy(
        name="inferline",
        kind="inferline",
        latency="p50",
        rate="p50",
        estimator="ewma",
        routing="balanced",
        dropping="per-task",
    ),
    "proteus": Policy(
        name="proteus",
        kind="proteus",
        latency="p50",
        rate="p50",
        estimator="ewma",
        dropping="per-task",
    ),
    # Dispatch of queries to unlike devices one by one, and the rules it is compared with
    # (control/policies/kairos/dispatch_rules.py). The paper has no urgency and serves late queries.
    "kairos": Policy(name="kairos", kind="kairos"),
    "kairos-paper": Policy(
        name="kairos-paper", kind="kairos-paper", urgency=0.0, bound="eq15", pick="paper"
    ),
    "fcfs": Policy(name="fcfs", kind="fcfs"),
    "threshold": Policy(name="threshold", kind="threshold"),
    "earliest": Policy(name="earliest", kind="earliest"),
}


# The kinds of policy that hold queries back and send each to a device that is free.
DISPATCHING = ("kairos", "kairos-paper", "fcfs", "threshold", "earliest")

# The kinds of policy that choose per batch, by tables that
# control/policies/ramsis/table_builder.py makes.
SELECTING = ("ramsis", "ramsis-paper", "ramsis-variable")


def selections(pipeline: Pipeline, policy: Policy) -> dict[str, str]:
    """Which kind of tables each task's workers follow under a policy; nothing for the others.

    A task may ask for them beside a policy that decides replicas; ``static`` means what it says.
    """
    if policy.kind in SELECTING:
        return {pipeline.root.name: policy.kind}
    if policy.kind == "static":
        return {}
    return {task.name: task.selection for task in pipeline.tasks if task.selection}


def policy_named(pipeline: Pipeline, name: str) -> Policy | None:
    """The pipeline's policy of that name; those of ``BUILT_IN`` are always there."""
    known: Mapping[str, Policy] = {policy.name: policy for policy in pipeline.policies}
    return known.get(name) or BUILT_IN.get(name)
