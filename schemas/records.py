"""What is said between processes: one frozen class per record of the wire contract.

Times are seconds since the epoch and durations seconds, both as ``float``, on one clock.
``docs/reference/records.md`` shows each record as Avro and as JSON.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field

from schemas.enumerations import NodeState, PlanCause, ReasonCode
from schemas.variant_id import variant_key

# What operators exchange. Lists and mappings hold JSON values only; arrays travel as tensors.
Value = None | bool | int | float | str | bytes | np.ndarray | list[Any] | dict[str, Any]

# A query enters with this much credit; fan-out splits it without remainder
# (control/per_query/credit.py).
# 10**18 fits a signed 64-bit integer and survives six levels of a thousand children each.
FULL_CREDIT = 10**18

# Outcomes of a query, and of one branch of it. A query has exactly one.
ANSWERED = "answered"
DROPPED = "dropped"
FAILED = "failed"
REFUSED = "refused"


class Origin(Struct, frozen=True, gc=False):
    """Where a query stands on the input topic: its identity, whatever id its producer chose."""

    partition: int
    offset: int


class Query(Struct, frozen=True, gc=False, kw_only=True):
    """A request as the producer wrote it, or as ingress reads it from a raw value.

    ``deadline_s`` wins over ``slo_class``, which wins over the pipeline's SLO.
    """

    payload: Value
    id: str = ""  # empty: ingress names it after its origin
    deadline_s: float | None = None
    slo_class: str = ""
    size: int = 1  # samples to rank, tokens, pixels: what latencies are looked up by


class Garbled(Struct, frozen=True, gc=False):
    """Bytes that no codec of ours understands, with the reason. Never leaves the process."""

    value: bytes
    reason: str
    headers: tuple[tuple[str, bytes], ...] = ()
    id: str = ""


class Hop(Struct, frozen=True, gc=False, kw_only=True):
    """One task's part in an item's story."""

    task: str
    variant: str
    worker: str
    epoch: int
    received_s: float
    started_s: float
    finished_s: float
    batch: int  # items in the batch it ran in
    released: str = ""  # why that batch began: full, idle, due; empty: not told
    rerouted: str = ""  # why the item then went elsewhere than its turn was; empty: it did not

    @property
    def key(self) -> str:
        """The variant's text form, "task/variant"."""
        return variant_key(self.task, self.variant)


class End(Struct, frozen=True, gc=False):
    """Why an item goes no further: it is ``answered`` at a leaf, ``dropped`` or ``failed``.

    ``reason_code`` says why to programs, ``reason`` to people.
    """

    outcome: str
    task: str
    reason: str = ""
    reason_code: ReasonCode = ReasonCode.NONE


class Item(Struct, frozen=True, gc=False, kw_only=True):
    """One piece of a query's work.

    ``branch`` names the piece: (child index, ordinal) for every fan-out since the root, so that
    branches sort in the order in which operators produced them. ``credit`` is its share of
    ``FULL_CREDIT``. ``path`` holds the hops so far. ``end`` is set on the way to egress only.
    """

    branch: tuple[int, ...] = ()
    credit: int = FULL_CREDIT
    value: Value = None
    path: tuple[Hop, ...] = ()
    end: End | None = None


class Work(Struct, frozen=True, gc=False, kw_only=True):
    """Items of one query that travel together to one slot of a task, or to egress (task "").

    So many queries of the same run ``follow`` it on the slot; a worker may wait for them.
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


class Completion(Struct, frozen=True, gc=False, kw_only=True):
    """A worker has done a query that a dispatcher sent it. Durations only: clocks differ.

    ``slot`` is the one that it came by, ``outcome`` "answered" where the batch ran, whatever then
    became of the query.
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
    """What ingress took in since its last notice, told to egress so that every query is awaited.

    ``queries`` come from one partition of the input topic, in the order of their offsets;
    ``upto`` is the offset behind the last one: all before it have been noticed.
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


class Answer(Struct, frozen=True, gc=False, kw_only=True):
    """How a query ended; ``operators.outcomes.outcome_of`` gives the outcome it counts under.

    ``outcome`` is answered, dropped, failed or refused; ``late`` marks an answer behind its
    deadline, ``incomplete`` one with a branch missing. ``paths`` has the hops of every branch
    that reached egress, in branch order, and ``ends`` how each of them ended. ``reason_code``
    says to programs why it is not answered, or not in full; ``reason`` to people.
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


class DeadLetter(Struct, frozen=True, gc=False, kw_only=True):
    """A record that could not be understood, kept as it came."""

    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    node: str = ""
    at_s: float


class SlotState(Struct, frozen=True, gc=False):
    """How far a worker is with a slot: offsets below ``done`` need nobody any more."""

    task: str
    slot: int
    done: int
    queued: int  # items it holds and has not finished


class Report(Struct, frozen=True, gc=False, kw_only=True):
    """A node's sign of life, every 200 ms.

    ``counts`` only grow during one ``incarnation`` (the node's start time), so a lost report
    loses nothing. Workers count per variant: ``arrived/T/V``, ``finished/T/V``,
    ``dropped/T/V``, ``failed/T/V``, ``batches/T/V``, ``busy_s/T/V`` and ``children/T/V/CHILD``;
    ingress ``arrived``, ``admitted``, ``refused``; egress one count per outcome
    (operators/outcomes.py), ``incomplete`` answers, ``latency_s/BOUND`` by how long answers
    took, and ``OUTCOME/CODE`` by the reason code where a query was dropped, failed or refused.
    ``error`` says why the state is ``failed`` or ``stuck``.
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


class Lease(Struct, frozen=True, gc=False, kw_only=True):
    """What one worker does under a plan.

    It loads ``variant``, runs batches of at most ``batch`` and reads ``slots``; senders write
    only to ``open_slot`` (-1: to none, the worker drains what is left).
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

    ``source`` is the variant ("task/variant") that sends, or "" for every sender without routes
    of its own. Where the policy scales accuracy, routes of one task and source stand in falling
    accuracy, ``spare_qps`` are the items per second that the slot's worker could do beyond what
    it is sent, and ``latency_s`` is what it takes for a batch of the plan's size.
    """

    task: str
    slot: int
    share: float
    source: str = ""
    spare_qps: float = 0.0
    latency_s: float = 0.0


class Factor(Struct, frozen=True, gc=False):
    """How many items for ``child`` an item of ``variant`` ("task/variant") makes, as observed.

    ``items`` weigh the observation: of so many of late it is the mean.
    """

    variant: str
    child: str
    mean: float
    items: float


class Settings(Struct, frozen=True, gc=False, kw_only=True):
    """What commands have changed; rides in every plan so that it outlives the control app.

    With what the pipeline file said then ("", 0: not known): it wins where it has changed since.
    """

    policy: str
    slo_s: float
    demand_qps: float | None = None  # None: measured
    drained: tuple[str, ...] = ()  # workers or devices
    paused: bool = False
    filed_policy: str = ""
    filed_slo_s: float = 0.0


class Plan(Struct, frozen=True, gc=False, kw_only=True):
    """A full snapshot of who does what. Readers keep the one with the highest epoch.

    ``capacity_qps`` is what ingress admits per second at most (None: no limit). ``mode`` says how
    a planner that scales accuracy met the demand: "hardware", "accuracy" or "best-effort".
    ``factors`` are what it knew of fan-out, so that the next control app knows it too. ``causes``
    say to programs what led to it, ``reason`` to people.
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
    binding: str = ""  # where infeasible: what stands in the way
    mode: str = ""
    factors: tuple[Factor, ...] = ()
    causes: tuple[PlanCause, ...] = ()


class SelectionTable(Struct, frozen=True, gc=False, kw_only=True):
    """What workers run at one load, by queue length and slack.

    ``rows[n - 1]`` is for n items queued, the last row for any more. A row holds (level, variant,
    batch) again and again, by growing level from 0: from that level of slack on, so many items
    with that variant, both by their numbers in ``Selection``. A batch of as many as there are rows
    stands for the whole queue. It is made for queries that ingress sends in runs of ``run``.
    """

    qps: float
    rows: tuple[tuple[int, ...], ...]
    expected_accuracy: float = 0.0
    expected_violation: float = 0.0
    run: int = 1


class Selection(Struct, frozen=True, gc=False, kw_only=True):
    """Which variant and batch for this queue and slack? A task's tables, solved ahead, by load.

    A worker of the task follows the newest of its policy while that one is in force: it holds all
    ``variants`` and chooses anew for each batch. Loads are those of all ``workers`` together; one
    worker's load is its part of that.
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
    reason: str = ""  # where there are no tables: why none can be made


class Command(Struct, frozen=True, gc=False, kw_only=True):
    """A person's wish: ``action`` with its ``arguments``, all strings.

    ``id`` makes it idempotent.
    """

    id: str
    pipeline: str
    action: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    issued_s: float = 0.0


class CommandResult(Struct, frozen=True, gc=False, kw_only=True):
    """The one answer to a command: what was done, or why not, and the plan epoch that shows it."""

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
    | Command
    | CommandResult
    | Garbled
)
