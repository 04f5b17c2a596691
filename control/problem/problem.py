"""The input of every planner, ``Problem``, and its output, ``Allocation``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Policy, Variant
from schemas.records import Plan
from schemas.user_errors import HeadraceError
from schemas.variant_id import variant_key

# The guarantee of an allocation (``Allocation.mode``); "" guarantees no demand.
HARDWARE, ACCURACY, BEST_EFFORT = "hardware", "accuracy", "best-effort"

Meter = Callable[[], tuple[float, float]]  # -> CPU seconds, wall seconds so far


def unmetered() -> tuple[float, float]:
    """Return zero seconds, for solves whose cost is not measured."""
    return 0.0, 0.0


class PlanError(HeadraceError, ValueError):
    """No plan can be made for the problem; the message says what to change."""


class Unplannable(PlanError):
    """The policy cannot plan this pipeline on any cluster; the message says what to change."""


class Unprofiled(Unplannable):
    """The profile lacks what the policy plans by; the message says what to profile."""


class SelectionError(PlanError):
    """No policy table can be made for the input; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The choice of variants for the workers: the input of every planner.

    ``devices`` has one entry for every worker that may be used ("cpu", "cuda:0", "emulated").
    """

    pipeline: Pipeline
    policy: Policy
    slo_s: float
    demand_qps: float  # root queries per second, times the reserve
    devices: tuple[str, ...]
    profile: ProfileTable | None = None
    memory: Mapping[str, int] = field(default_factory=dict)  # device -> bytes one worker may use
    # ("task/variant", child) -> items per item, if workers' reports differ from the profile
    multiplicity: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # "task/variant" from the root to a leaf -> accuracy, if whole paths were measured
    path_accuracy: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    # "task/variant" -> items per second that arrive there, for planners that split a task's traffic
    # as observed
    arriving: Mapping[str, float] = field(default_factory=dict)
    # task -> items that wait there; the root's include those on the input topic
    queued: Mapping[str, float] = field(default_factory=dict)
    # factor on the demand for workers that are slower than others of their kind: the number of
    # workers over their equivalent in usual ones
    reserve: float = 1.0
    # "task/variant" -> workers that take new work under the plan in force
    running: Mapping[str, int] = field(default_factory=dict)
    # read before and after each solve
    meter: Meter = field(default=unmetered, compare=False, repr=False)
    # SLO class -> its SLO in seconds, for the classes that count; plans keep the tightest one
    classes: Mapping[str, float] = field(default_factory=dict)
    # wall seconds of the meter at which solvers stop with the best plan so far; only live
    stop_s: float = field(default=inf, compare=False, repr=False)

    def batch(self, variant: Variant) -> int:
        """Return the largest batch of a variant under the policy."""
        return self.policy.batch.get(variant.key, variant.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The number of workers that run a variant, in batches of at most ``batch``.

    If the cluster has several kinds of devices, ``device`` is the kind's name and ``on`` its
    devices; both are empty for any device. ``beside`` are further variants of the task that each
    worker holds and chooses among for every batch.
    """

    task: str
    variant: str
    batch: int
    count: int
    device: str = ""
    on: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The variant's name in plans and reports: "task/variant"."""
        return variant_key(self.task, self.variant)

    def may_run_on(self, device: str) -> bool:
        """Return whether a device is of the kind."""
        return not self.on or device in self.on


@dataclass(frozen=True, slots=True)
class PathShare:
    """The share of all queries that follow a path of variants, from the root to a leaf task.

    ``path`` holds "task/variant"; ``devices`` the kind of device of each if the cluster has several
    kinds, else nothing. With tied branches the shares to each leaf task sum to the served share;
    with untied ones, those to all leaf tasks together.
    """

    path: tuple[str, ...]
    share: float
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest feasible value of each quantity, with the others unchanged; None: none."""

    demand_qps: float | None
    slo_s: float | None
    devices: int | None


@dataclass(frozen=True, slots=True)
class SolverRun:
    """A solver's run. ``gap`` is the proven relative gap, or None.

    Seconds include the handover of the models to the solver, but not building them.
    """

    solver: str
    gap: float | None
    cpu_s: float = 0.0
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """A planner's result, in the order of the pipeline; placement on workers is a later step.

    If it is not ``feasible``, ``binding`` names the binding constraint. The fields from ``mode`` on
    are for planners that scale accuracy: ``mode`` is "hardware", "accuracy" or "best-effort".
    ``slo_s`` is the SLO of the SLO class that it was made for; 0: the pipeline's.
    """

    replicas: tuple[Replicas, ...]
    feasible: bool = True
    binding: str = ""
    mode: str = ""
    accuracy: float | None = None  # of the served queries, 0..1; None if none is served
    served_share: float = 1.0
    shares: tuple[PathShare, ...] = ()
    nearest: Nearest | None = None
    solved: SolverRun | None = None
    slo_s: float = 0.0

    @property
    def devices_used(self) -> int:
        """Number of workers that run a variant."""
        return sum(each.count for each in self.replicas)


def is_exhausted(plan: Plan) -> bool:
    """Return whether a plan serves as much as possible, and less than the demand that it is for.

    A plan that serves its demand may be infeasible for another reason: an SLO class that cannot be
    met, or too few devices for a task's least replicas. With more demand it would use more devices.
    """
    return not plan.feasible and plan.mode in ("", BEST_EFFORT)
