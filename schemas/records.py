"""Records of the wire contract: one frozen class each.

Times are seconds since the epoch and durations seconds, both as ``float``, on one clock.
``docs/reference/records.md`` shows each record as Avro and as JSON.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field

from schemas.enumerations import NodeState, PlanCause, ReasonCode, SessionState
from schemas.variant_id import variant_key

# Types of values that operators exchange. Lists and mappings hold JSON values only; arrays are
# encoded as tensors.
Value = None | bool | int | float | str | bytes | np.ndarray | list[Any] | dict[str, Any]

# The credit of a new query; fan-out splits it without remainder (operators/serving/fanout.py).
# 10**18 fits a signed 64-bit integer and survives six levels of a thousand children each.
FULL_CREDIT = 10**18

# Outcomes of a query, and of one branch of it. A query has exactly one.
ANSWERED = "answered"
DROPPED = "dropped"
FAILED = "failed"
REFUSED = "refused"


class Origin(Struct, frozen=True, gc=False):
    """A query's partition and offset: its identity, whatever id its producer chose."""

    partition: int
    offset: int


class Query(Struct, frozen=True, gc=False, kw_only=True):
    """A request as the producer wrote it, or as ingress reads it from a raw value.

    ``deadline_s`` takes precedence over ``slo_class``, which takes precedence over the pipeline's
    SLO.
    """

    payload: Value
    id: str = ""  # empty: ingress names it after its origin
    deadline_s: float | None = None
    slo_class: str = ""
    size: int = 1  # samples to rank, tokens, pixels: the key of latencies in the profile
    session: str = ""  # the session it belongs to; "": none


class Garbled(Struct, frozen=True, gc=False):
    """Bytes that no codec can decode, with the reason. Never leaves the process."""

    value: bytes
    reason: str
    headers: tuple[tuple[str, bytes], ...] = ()
    id: str = ""


class Hop(Struct, frozen=True, gc=False, kw_only=True):
    """One task's part of an item's path."""

    task: str
    variant: str
    worker: str
    epoch: int
    received_s: float
    started_s: float
    finished_s: float
    batch: int  # items in the batch it ran in
    released: str = ""  # why that batch began: full, idle, due; empty: not recorded
    rerouted: str = ""  # why the item then left its turn for another slot; empty: it did not

    @property
    def key(self) -> str:
        """The variant's text form, "task/variant"."""
        return variant_key(self.task, self.variant)


class End(Struct, frozen=True, gc=False):
    """The end of an item: ``answered`` at a leaf, ``dropped`` or ``failed``.

    ``reason_code`` gives the reason for programs, ``reason`` for people.
    """

    outcome: str
    task: str
    reason: str = ""
    reason_code: ReasonCode = ReasonCode.NONE


class Item(Struct, frozen=True, gc=False, kw_only=True):
    """One piece of a query's work.

    ``branch`` identifies the piece: (child index, ordinal) for every fan-out since the root, so
    that branches sort in the order in which operators produced them. ``credit`` is its share of
    ``FULL_CREDIT``. ``path`` holds the hops so far. ``end`` is set on the way to egress only.
    """

    branch: tuple[int, ...] = ()
    credit: int = FULL_CREDIT
    value: Value = None
    path: tuple[Hop, ...] = ()
    end: End | None = None


class SessionStage(Struct, frozen=True, gc=False, kw_only=True):
    """One task of a query plan: its setting ("task/variant@knob=option,..."), and where it runs.

    ``device`` is a device of ``tier``, ``slot`` the slot of its worker, ``quarters`` what the stage
    occupies of the device (0: a device of the session's own).
    """

    task: str
    setting: str
    tier: str
    device: str
    slot: int
    quarters: int


class SessionPlan(Struct, frozen=True, gc=False, kw_only=True):
    """The query plan of a session, as work bears it: every sender writes to the slot named here.

    ``number`` counts the session's plans from 1. Ingress sends by the plan that ``admits``; workers
    hold the settings of all plans.
    """

    session: str
    number: int
    slo_s: float
    stages: tuple[SessionStage, ...] = ()
    admits: bool = False

    def stage(self, task: str) -> SessionStage:
        """Return a task's stage; raise ``KeyError`` for a task that the plan lacks."""
        for stage in self.stages:
            if stage.task == task:
                return stage
        raise KeyError(f"the plan of session {self.session!r} has no task {task!r}")


class Work(Struct, frozen=True, gc=False, kw_only=True):
    """Items of one query that travel together to one slot of a task, or to egress (task "").

    ``follow`` is the number of queries of the same run that come behind it on the slot; a worker
    may wait for them.
    """

    query_id: str
    origin: Origin
    task: str
    created_s: float
    deadline_s: float
    epoch: int
    attempt: int = 1
    items: tuple[Item, ...] = ()
    follow: int = 0
    size: int = 1  # the query's
    slo_class: str = ""  # the query's
    session: SessionPlan | None = None  # the query plan by which it goes; None: the plan's routes


class Completion(Struct, frozen=True, gc=False, kw_only=True):
    """A worker has finished a query that a dispatcher sent to it. Durations only: clocks differ.

    ``slot`` is the slot it was sent to, ``outcome`` is "answered" where the batch ran, whatever the
    query's outcome is later.
    """

    query_id: str
    origin: Origin
    slot: int
    worker: str
    type: str  # of the worker's device
    setting: str  # "task/variant"
    size: int
    queued_s: float  # at the worker, before it began
    run_s: float
    outcome: str


class Notice(Struct, frozen=True, gc=False, kw_only=True):
    """The queries that ingress has consumed since its last notice, for egress to await.

    ``queries`` come from one partition of the input topic, in the order of their offsets; ``upto``
    is the offset behind the last one: all before it have been noticed.
    """

    partition: int
    upto: int
    queries: tuple["Noticed", ...] = ()


class Noticed(Struct, frozen=True, gc=False, kw_only=True):
    """A query that ingress admitted, or refused for the reason given."""

    query_id: str
    offset: int
    created_s: float
    deadline_s: float
    refused: str = ""
    reason_code: ReasonCode = ReasonCode.NONE
    slo_class: str = ""
    session: str = ""


class TreeHop(Struct, frozen=True, gc=False):
    """A hop that all branches below it share; ``before`` is the index of the hop before it, -1 for
    the first hop of a path."""

    before: int
    hop: Hop


class TreeBranches(Struct, frozen=True, gc=False):
    """``count`` neighbouring branches with the same last hop (-1: none) and the same end, both as
    indices."""

    hop: int
    end: int
    count: int


class PathTree(Struct, frozen=True, gc=False):
    """The paths and ends of all branches in branch order, each hop and each end once.

    ``schemas/codec/path_tree.py`` converts an answer's ``paths`` and ``ends`` to it and back.
    """

    hops: tuple[TreeHop, ...] = ()
    ends: tuple[End, ...] = ()
    branches: tuple[TreeBranches, ...] = ()


class Answer(Struct, frozen=True, gc=False, kw_only=True):
    """The outcome of a query; ``operators.outcomes.outcome_of`` gives the one it counts under.

    ``outcome`` is answered, dropped, failed or refused; ``late`` marks an answer behind its
    deadline, ``incomplete`` one with a branch missing. ``paths`` has the hops of every branch that
    reached egress, in branch order, and ``ends`` their ends; on the results topic a ``tree`` may
    stand in place of both. Where there is no answer, or no
    complete one, ``reason_code`` gives the reason for programs, ``reason`` for people.
    """

    id: str
    origin: Origin
    outcome: str
    reason: str = ""
    task: str = ""  # where it was dropped or failed
    late: bool = False
    incomplete: bool = False
    result: Value = None
    created_s: float
    deadline_s: float
    answered_s: float
    epoch: int = 0
    expected_accuracy: float | None = None
    paths: tuple[tuple[Hop, ...], ...] = ()
    ends: tuple[End, ...] = ()
    reason_code: ReasonCode = ReasonCode.NONE
    tree: PathTree | None = None
    slo_class: str = ""  # the query's
    session: str = ""  # the query's; "": none


class DeadLetter(Struct, frozen=True, gc=False, kw_only=True):
    """A record that could not be decoded, with its bytes unchanged."""

    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    node: str = ""
    at_s: float


class SlotState(Struct, frozen=True, gc=False):
    """A worker's progress on a slot: offsets below ``done`` are finished."""

    task: str
    slot: int
    done: int
    queued: int  # items it holds and has not finished


class Report(Struct, frozen=True, gc=False, kw_only=True):
    """A node's heartbeat, every 200 ms.

    ``counts`` only grow during one ``incarnation`` (the node's start time), so a lost report loses
    no information. Workers count per variant: ``arrived/T/V``, ``finished/T/V``, ``dropped/T/V``,
    ``failed/T/V``, ``batches/T/V``, ``busy_s/T/V`` and ``children/T/V/CHILD``; ingress ``arrived``,
    ``admitted``, ``refused``; egress one count per outcome (operators/outcomes.py), ``incomplete``
    answers, ``class/CLASS/OUTCOME`` where there are SLO classes ("" for queries without one),
    ``latency_s/BOUND`` by the latency of answers, and ``OUTCOME/CODE`` by the reason code
    where a query was dropped, failed or refused; ``session/ID/OUTCOME`` for the queries of an open
    session. ``error`` is the reason for the state ``failed`` or ``stuck``, or why a ready worker
    cannot load a setting; ``held`` are the settings of sessions that a worker has loaded. ``file``
    is the fingerprint of the node's pipeline file (``schemas/pipeline_fingerprint.py``).
    ``reads_release`` among the counts is the newest schema release that the node reads
    (``schemas/release.py``). ``measured`` are the scorer's accuracies by path, while one has left
    the interval of its profile.
    """

    node: str
    role: str  # "ingress", "worker" or "egress"
    pipeline: str
    epoch: int  # of the plan it follows
    incarnation: float
    sent_s: float
    state: NodeState
    device: str = ""
    task: str = ""
    variant: str = ""
    slots: tuple[SlotState, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    file: str = ""
    held: tuple[str, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)


class Lease(Struct, frozen=True, gc=False, kw_only=True):
    """One worker's assignment under a plan.

    It loads ``variant``, runs batches of at most ``batch`` and reads ``slots``; senders write only
    to ``open_slot`` (-1: to none, the worker drains the rest).
    """

    worker: str
    task: str
    variant: str
    batch: int
    slots: tuple[int, ...]
    open_slot: int = -1
    type: str = ""  # of the worker's device, where ingress dispatches by it

    @property
    def key(self) -> str:
        """The variant's text form, "task/variant"."""
        return variant_key(self.task, self.variant)


class Route(Struct, frozen=True, gc=False):
    """A share of a task's traffic that goes to a slot. Shares of one task and source sum to 1.

    ``source`` is the variant ("task/variant") that sends, or "" for every sender without routes of
    its own. Where the policy scales accuracy, routes of one task and source are in falling
    accuracy, ``spare_qps`` is the capacity of the slot's worker, in items per second, beyond its
    routed load, and ``latency_s`` is its latency for a batch of the plan's size.
    """

    task: str
    slot: int
    share: float
    source: str = ""
    spare_qps: float = 0.0
    latency_s: float = 0.0


class Factor(Struct, frozen=True, gc=False):
    """Observed items for ``child`` that one item of ``variant`` ("task/variant") makes.

    ``items`` is the weight of the observation: the number of recent items behind the mean.
    """

    variant: str
    child: str
    mean: float
    items: float


class Settings(Struct, frozen=True, gc=False, kw_only=True):
    """The settings that commands have changed; plans carry them to the next control app.

    ``filed_policy`` and ``filed_slo_s`` are the pipeline file's values at that time ("", 0:
    unknown): the file takes precedence where it has changed since. ``reloads`` has, by
    "task/variant", the build of its operator that workers must have (0 where it is missing).
    ``prices`` and ``budget`` are $ per hour, by device type and for all (missing, None: as filed).
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
    planner that scales accuracy met the demand: "hardware", "accuracy" or "best-effort".
    ``factors`` are the observed fan-outs, from which the next control app resumes. ``causes`` give
    the reason for programs, ``reason`` for people. Every node writes in the schema ``release``
    (0: that of ``schemas.release.UNDECLARED``). ``mix`` has the rented devices that should run, by
    type; it is empty where none are rented while the pipeline runs. ``planned_slo_s`` is the SLO
    that every used path keeps where SLO classes count (0: that of the settings).
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

    @property
    def tightest_slo_s(self) -> float:
        """The SLO in seconds that every used path keeps."""
        return self.planned_slo_s or self.settings.slo_s


class SessionChoice(Struct, frozen=True, gc=False, kw_only=True):
    """A query plan that meets a session's objectives, before it has devices.

    ``settings`` ("task/variant@..."), ``tiers`` and ``quarters`` of a device are by task; quarters
    of 0 need no part of a shared device. ``latency_s`` 0: not known.
    """

    settings: Mapping[str, str]
    tiers: Mapping[str, str]
    quarters: Mapping[str, int]
    latency_s: float = 0.0
    accuracy: float | None = None
    usd_per_h: float = 0.0


class Session(Struct, frozen=True, gc=False, kw_only=True):
    """A stream of queries with objectives of its own, and the plans that meet them.

    ``accuracy`` is the least, ``usd_per_h`` the most that its plan may cost; None: any. ``samples``
    names the sample set of its search; "": its plan was made by hand. ``chosen`` is the index of
    the plan in force (-1: none), ``number`` that of the newest ``SessionPlan``; ``reason`` says
    what it waits for. Its search took ``search_s`` seconds, ``steps`` configurations and
    ``profile_s`` device seconds; the schedule that chose its plan ``schedule_s``; loading it and
    switching over ``switch_s``. It was planned anew ``replans`` times, the last time for ``cause``,
    which was noticed ``detect_s`` seconds after it began.
    """

    id: str
    pipeline: str
    state: SessionState
    slo_s: float
    accuracy: float | None = None
    usd_per_h: float | None = None
    weight: float = 1.0
    samples: str = ""
    plans: tuple[SessionChoice, ...] = ()
    chosen: int = -1
    number: int = 0
    opened_s: float = 0.0
    changed_s: float = 0.0
    reason: str = ""
    steps: int = 0
    stopped: str = ""
    search_s: float = 0.0
    profile_s: float = 0.0
    schedule_s: float = 0.0
    switch_s: float = 0.0
    replans: int = 0
    cause: str = ""
    detect_s: float = 0.0


class SelectionTable(Struct, frozen=True, gc=False, kw_only=True):
    """The decisions of workers at one load, by queue length and slack.

    ``rows[n - 1]`` is for n items queued, the last row for any more. A row repeats (level, variant,
    batch), by growing level from 0: from that level of slack on, a batch of that size with that
    variant; level and variant are indices into ``Selection``. A batch equal to the number of rows
    means the whole queue. The table is made for queries that ingress sends in runs of ``run``.
    """

    qps: float
    rows: tuple[tuple[int, ...], ...]
    expected_accuracy: float = 0.0
    expected_violation: float = 0.0
    run: int = 1


class Selection(Struct, frozen=True, gc=False, kw_only=True):
    """A task's tables of variant and batch by queue and slack, solved in advance, by load.

    A worker of the task follows the newest selection of its policy while that policy is in force:
    it holds all ``variants`` and chooses anew for each batch. Loads are those of all ``workers``
    together; one worker's load is its part of that.
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
    reason: str = ""  # why no tables can be made, where there are none


class ProfileRequest(Struct, frozen=True, gc=False, kw_only=True):
    """A search asks a profiler to run one configuration on samples ``first`` to ``upto - 1``.

    ``options`` maps "task.knob" to the option's name. A request of a later ``step`` of the same
    ``search`` voids it, and so does the time ``expires_s``. ``space`` is the hash of the search
    space (``Space.digest``): a profiler with another one refuses.
    """

    search: str
    pipeline: str
    space: str
    options: Mapping[str, str]
    sample_set: str
    first: int
    upto: int
    step: int
    expires_s: float


class ProfileResult(Struct, frozen=True, gc=False, kw_only=True):
    """The scores and costs of one configuration on the samples from ``first`` on.

    ``scores`` are from 0 to 1, one per sample. ``seconds`` and ``bytes`` are sums over the samples,
    by task: seconds on the device, as if nothing had been cached, and bytes of outputs. ``cached``
    counts the samples whose output of a task was cached; ``spent_s`` is what the profiler really
    computed. ``error`` says why there are no scores.
    """

    pipeline: str
    space: str
    options: Mapping[str, str]
    sample_set: str
    first: int
    scores: tuple[float, ...]
    seconds: Mapping[str, float]
    bytes: Mapping[str, float]
    cached: Mapping[str, int]
    input_bytes: float
    spent_s: float
    device: str
    profiler: str
    finished_s: float
    error: str = ""


class Label(Struct, frozen=True, gc=False, kw_only=True):
    """What the answer to query ``id`` should have been: its true result, or how much is right.

    With ``truth`` a scorer compares it with the answer's result; ``right`` of ``of`` parts is the
    sender's own judgement.
    """

    id: str
    truth: Value = None
    right: float | None = None
    of: float | None = None


class AccuracyRow(Struct, frozen=True, gc=False, kw_only=True):
    """The labelled answers of one path and class in the hour from ``hour_s`` on.

    ``path`` names the distinct variant paths of the query's branches, sorted, with " + " between
    them; so every query is in one row. ``right`` and ``of`` are sums over the queries,
    ``right_right``, ``right_of`` and ``of_of`` sums of products. ``low`` and ``high`` bound
    ``accuracy`` with 95 % confidence (control/estimation/accuracy_sums.py). Where answers are
    compared with their shadows, ``reference`` is the shadows' path, ``reference_accuracy`` the
    profile's for it, and "right" means: equal to the shadow. ``expected`` is the profile's
    accuracy of ``path``, with its 95 % interval; None: unknown.
    """

    path: str
    slo_class: str
    hour_s: float
    queries: int
    right: float
    of: float
    right_right: float
    right_of: float
    of_of: float
    accuracy: float
    low: float
    high: float
    reference: str = ""
    reference_accuracy: float | None = None
    expected: float | None = None
    expected_low: float | None = None
    expected_high: float | None = None


class MeasuredAccuracy(Struct, frozen=True, gc=False, kw_only=True):
    """The accuracy of a pipeline's answers by their labels, so far.

    ``counts`` are labels by what became of them (operators/scoring/scorer.py), ``shadow_counts``
    likewise shadows. ``shadows`` are the rows of answers compared with their shadows. ``recent``
    has a row for the newest labels of each path, and one for its newest shadows; their ``hour_s``
    is the time of the oldest answer in them. The maps hold, by partition, the offset below which
    answers, labels and shadows are counted here; ``trouble`` is the newest error of the scorer.
    """

    pipeline: str
    at_s: float
    rows: tuple[AccuracyRow, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    answers_upto: Mapping[str, int] = field(default_factory=dict)
    labels_upto: Mapping[str, int] = field(default_factory=dict)
    shadows: tuple[AccuracyRow, ...] = ()
    shadow_counts: Mapping[str, int] = field(default_factory=dict)
    shadows_upto: Mapping[str, int] = field(default_factory=dict)
    recent: tuple[AccuracyRow, ...] = ()
    trouble: str = ""


class Command(Struct, frozen=True, gc=False, kw_only=True):
    """A person's command: ``action`` with its ``arguments``, all strings.

    ``id`` makes it idempotent.
    """

    id: str
    pipeline: str
    action: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    issued_s: float = 0.0


class CommandResult(Struct, frozen=True, gc=False, kw_only=True):
    """The one result of a command: the change or the error, and the plan epoch that shows it."""

    id: str
    pipeline: str
    action: str
    ok: bool
    message: str
    epoch: int
    finished_s: float


Record = (
    Query
    | Work
    | Completion
    | Notice
    | Answer
    | DeadLetter
    | Report
    | Plan
    | Selection
    | Session
    | ProfileRequest
    | ProfileResult
    | Label
    | MeasuredAccuracy
    | Command
    | CommandResult
    | Garbled
)
