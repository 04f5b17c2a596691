"""Records of a query from its producer to egress: ``QUERIES``, work topics, ``OUTPUTS``, and the
completions that dispatchers read."""

from typing import Any

import numpy as np
from msgspec import Struct

from schemas.enumerations import ReasonCode
from schemas.records.sessions import SessionPlan
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
    """A query's partition and offset, which identify it regardless of the id its producer chose."""

    partition: int
    offset: int


class Trace(Struct, frozen=True, gc=False):
    """The trace context of a query's producer (W3C), valid and in the form of version 00.

    ``tracestate`` is "" if there is none.
    """

    traceparent: str
    tracestate: str = ""

    @property
    def id(self) -> str:
        """The trace's id: 32 hexadecimal digits."""
        return self.traceparent[3:35]

    @property
    def parent(self) -> str:
        """The id of the producer's span: 16 hexadecimal digits."""
        return self.traceparent[36:52]

    @property
    def sampled(self) -> bool:
        """Whether the producer keeps the trace."""
        return bool(int(self.traceparent[53:55], 16) & 1)


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
    session: str = ""  # the query's session; "": none


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
    batch: int  # number of items in its batch
    released: str = ""  # why the batch started: full, idle, due; empty: not recorded
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

    ``branch`` identifies the piece: (child index, ordinal) for every fan-out since the root.
    Branches therefore sort in the order in which operators produced them. ``credit`` is the item's
    share of ``FULL_CREDIT``. ``path`` holds the hops so far. ``end`` is set only on the way to
    egress.
    """

    branch: tuple[int, ...] = ()
    credit: int = FULL_CREDIT
    value: Value = None
    path: tuple[Hop, ...] = ()
    end: End | None = None


class Work(Struct, frozen=True, gc=False, kw_only=True):
    """Items of one query that travel together to one slot of a task, or to egress (task "").

    ``follow`` is the number of queries of the same run that follow it on the slot; a worker may
    wait for them.
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
    session: SessionPlan | None = None  # the query plan that it follows; None: the plan's routes
    variant: str = ""  # that a dispatcher chose for the run; "": the worker chooses
    trace: Trace | None = None  # the query's


class Completion(Struct, frozen=True, gc=False, kw_only=True):
    """A worker has finished a query from a dispatcher. It has durations only, since clocks differ.

    ``slot`` is the slot that the query was sent to. ``outcome`` is "answered" if the batch ran,
    regardless of the query's later outcome.
    """

    query_id: str
    origin: Origin
    slot: int
    worker: str
    type: str  # of the worker's device
    setting: str  # "task/variant"
    size: int
    queued_s: float  # at the worker, before the batch started
    run_s: float
    outcome: str
