"""Plans, and the tables that workers follow under some policies."""

from collections.abc import Mapping

from msgspec import Struct, field

from schemas.enumerations import PlanCause
from schemas.records.sessions import SessionPlan
from schemas.variant_id import variant_key


class Lease(Struct, frozen=True, gc=False, kw_only=True):
    """One worker's assignment under a plan.

    The worker loads ``variant``, runs batches of at most ``batch`` and reads ``slots``. Senders
    write only to ``open_slot`` (-1: none, the worker drains the rest).
    """

    worker: str
    task: str
    variant: str
    batch: int
    slots: tuple[int, ...]
    open_slot: int = -1
    type: str = ""  # of the worker's device, if ingress dispatches by it

    @property
    def key(self) -> str:
        """The variant's text form, "task/variant"."""
        return variant_key(self.task, self.variant)


class Route(Struct, frozen=True, gc=False):
    """A share of a task's traffic that goes to a slot. Shares of one task and source sum to 1.

    ``source`` is the sending variant ("task/variant"), or "" for every sender without routes of
    its own. If the policy scales accuracy, routes of one task and source are in order of falling
    accuracy. ``spare_qps`` is the capacity of the slot's worker beyond its routed load, in items
    per second, and ``latency_s`` its latency for a batch of the plan's size.
    """

    task: str
    slot: int
    share: float
    source: str = ""
    spare_qps: float = 0.0
    latency_s: float = 0.0


class Factor(Struct, frozen=True, gc=False):
    """Observed mean number of items for ``child`` per item of ``variant`` ("task/variant").

    ``items`` is the weight of the observation: the number of recent items behind the mean.
    """

    variant: str
    child: str
    mean: float
    items: float


class Settings(Struct, frozen=True, gc=False, kw_only=True):
    """The settings that commands have changed; plans carry them to the next control app.

    ``filed_policy`` and ``filed_slo_s`` are the pipeline file's values at that time ("", 0:
    unknown): if the file has changed since, it takes precedence. ``reloads`` has, by
    "task/variant", the build of the operator that workers must have (missing: 0). ``prices`` and
    ``budget`` are $ per hour, by device type and in total (missing, None: those of the file).
    """

    policy: str
    slo_s: float
    demand_qps: float | None = None  # None: measured
    drained: tuple[str, ...] = ()  # workers or devices
    paused: bool = False
    filed_policy: str = ""
    filed_slo_s: float = 0.0
    reloads: Mapping[str, int] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    budget: float | None = None


class Plan(Struct, frozen=True, gc=False, kw_only=True):
    """A full snapshot of all assignments. Readers keep the one with the highest epoch.

    ``capacity_qps`` is the most that ingress admits per second (None: no limit). ``mode`` is how a
    planner that scales accuracy meets the demand: "hardware", "accuracy" or "best-effort".
    ``factors`` are the observed fan-outs, from which the next control app resumes. ``causes`` give
    the reason for programs, ``reason`` for people; ``command`` is the id of the command that it
    carries out ("": none), so that a restarted control app does not do so again. Every node writes
    in the schema ``release`` (0: that of ``schemas.release.UNDECLARED``).

    ``mix`` is the wanted number of rented devices by type; it is empty if no devices are rented
    at run time. With SLO classes, ``planned_slo_s`` is the SLO that every used path keeps (0: that
    of the settings). ``to_egress_s`` has, by task, the observed seconds within which most items
    get from the start of the task's batch to egress (missing: not observed yet).
    """

    pipeline: str
    epoch: int
    issued_s: float
    reason: str
    settings: Settings
    leases: tuple[Lease, ...] = ()
    routes: tuple[Route, ...] = ()
    demand_qps: float = 0.0
    capacity_qps: float | None = None
    expected_accuracy: float | None = None
    feasible: bool = True
    binding: str = ""  # the binding constraint of an infeasible plan
    mode: str = ""
    factors: tuple[Factor, ...] = ()
    causes: tuple[PlanCause, ...] = ()
    release: int = 0
    sessions: tuple[SessionPlan, ...] = ()
    mix: Mapping[str, int] = field(default_factory=dict)
    planned_slo_s: float = 0.0
    to_egress_s: Mapping[str, float] = field(default_factory=dict)
    command: str = ""

    def supersedes(self, held: "Plan | None") -> bool:
        """Return whether this plan takes the place of ``held``, for readers that outlive a purge.

        The epoch decides, as for every node; a purge of the pipeline restarts the epochs.
        """
        return held is None or self.epoch >= held.epoch or self.issued_s > held.issued_s

    @property
    def tightest_slo_s(self) -> float:
        """The SLO in seconds that every used path keeps."""
        return self.planned_slo_s or self.settings.slo_s


class SelectionTable(Struct, frozen=True, gc=False, kw_only=True):
    """The decisions of workers at one load, by queue length and slack.

    ``rows[n - 1]`` is for n queued items, the last row also for longer queues. A row repeats
    (level, variant, batch), by ascending level from 0: from that level of slack on, run a batch of
    that size with that variant. Level and variant are indices into ``Selection``. A batch equal to
    the number of rows means the whole queue. The table is made for queries that ingress sends in
    runs of ``run``.
    """

    qps: float
    rows: tuple[tuple[int, ...], ...]
    expected_accuracy: float = 0.0
    expected_violation: float = 0.0
    run: int = 1


class Selection(Struct, frozen=True, gc=False, kw_only=True):
    """A task's tables of variant and batch by queue and slack, solved in advance, by load.

    A worker of the task follows the newest selection of its policy while that policy is in force.
    It holds all ``variants`` and chooses one for each batch. Loads are those of all ``workers``
    together; one worker's load is its share.
    """

    pipeline: str
    task: str
    policy: str
    issued_s: float
    slo_s: float
    workers: int
    variants: tuple[str, ...]
    levels_s: tuple[float, ...]
    tables: tuple[SelectionTable, ...] = ()
    complete: bool = True
    reason: str = ""  # why no tables can be made, if there are none
