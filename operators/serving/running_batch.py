"""The batch that runs on a worker's device.

A batch that is given up as hanging has failed its items; the device stays busy until it ends.

    idle --start--> running --end--> idle
                    running --hangs--> hanging --end--> idle
"""

from collections.abc import Sequence
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from control.per_query.waiting_slots import completion_slot
from control.state_machine import ImpossibleTransition
from operators.serving.deadline_queue import Ticket
from schemas.effects import COMPLETIONS, Effect, Infer, Inferred, Send
from schemas.pipeline import Pipeline
from schemas.records import Completion, Hop, Lease
from schemas.variant_id import variant_id

# A batch still running this long before egress closes its last query fails with its own reason.
HANGING_MARGIN_S = 0.3


class BatchState(StrEnum):
    """The state of the device: free, or busy with a batch."""

    IDLE = "idle"
    RUNNING = "running"
    HANGING = "hanging"  # its items have failed, and it has not ended


_VALUE = attrgetter("item.value")  # of a ticket

# Names, because an enum member takes five times as long to look up, and a batch needs six.
IDLE, RUNNING, HANGING = BatchState


class NextBatch(NamedTuple):
    """A batch taken from a worker's queue, and the ``late`` items that are dropped with it."""

    items: list[Ticket]
    late: list[Ticket]
    variant: str
    cost: int  # the size under which its latency is profiled
    ends_s: float  # predicted end
    released: str  # the rule that released it


class RunningBatch:
    """The batch of one worker; ``tickets`` and ``variant`` stay those of the last one.

    ``named`` is set for real operators: requests then include the names of their items, for a crash
    journal, and the deadlines.
    """

    __slots__ = (
        "_named", "_pipeline", "_released", "_worker", "began_s", "busy", "cost", "error", "job",
        "state", "tickets", "variant",
    )  # fmt: skip

    def __init__(self, worker: str, pipeline: Pipeline, *, named: bool = False) -> None:
        self.tickets: list[Ticket] = []
        self.variant = ""
        self.cost = 0  # the size under which its latency is profiled
        self.job = 0
        self.error = ""  # why the batch was given up
        self.began_s = 0.0
        self._worker, self._pipeline, self._named = worker, pipeline, named
        self._released = ""  # the rule that released it
        self.state = IDLE
        self.busy = False  # a field, not a property: read for every record

    def start(self, batch: NextBatch, now: float) -> Infer:
        """Begin a batch under the next job number; return the request to run it.

        Raise ``ImpossibleTransition`` if one runs.
        """
        if self.state is not IDLE:
            raise ImpossibleTransition(f"the batch of {self._worker} is {self.state}")
        self.state, self.busy = RUNNING, True
        tickets = self.tickets = batch.items
        self.variant, self.cost, self._released = batch.variant, batch.cost, batch.released
        self.began_s = now
        self.job += 1
        values = tuple(map(_VALUE, tickets))
        size = 0 if self._pipeline.size is None else self.cost
        if not self._named:
            return Infer(self.job, self.variant, values, size=size)
        items = tuple([t.key for t in tickets])
        deadlines = tuple([t.work.deadline_s for t in tickets])
        return Infer(self.job, self.variant, values, items, size, deadlines)

    def end(self) -> None:
        """Free the device."""
        self.state, self.busy = IDLE, False
        self.error = ""

    def hangs(self, grace_s: float, now: float) -> bool:
        """Give up a hanging batch just before egress would close its queries without a cause."""
        if self.state is not RUNNING:
            return False
        last_s = max([ticket.work.deadline_s for ticket in self.tickets])
        if now < last_s + grace_s - min(HANGING_MARGIN_S, grace_s / 2):
            return False
        self.state = HANGING
        self.error = (
            f"{self.variant} has been running one batch of {len(self.tickets)} "
            f"for {now - self.began_s:.1f} s on {self._worker}"
        )
        return True

    def hop(self, ticket: Ticket, event: Inferred, epoch: int) -> Hop:
        """Return the entry of an item's path for this batch."""
        task, variant = variant_id(self.variant)
        return Hop(
            task=task, variant=variant, worker=self._worker, epoch=epoch,
            received_s=ticket.received_s, started_s=event.started_s,
            finished_s=event.finished_s, batch=len(self.tickets), released=self._released,
        )  # fmt: skip

    def completions(
        self, lease: Lease, items: Sequence[Ticket], outcome: str, started_s: float, took_s: float
    ) -> list[Effect]:
        """Report items of a batch to the dispatcher that sends to this ``lease``."""
        return [self._completion(t, lease, outcome, started_s, took_s) for t in items]

    def _completion(
        self, ticket: Ticket, lease: Lease, outcome: str, started_s: float, took_s: float
    ) -> Send:
        work = ticket.work
        done = Completion(
            query_id=work.query_id, origin=work.origin, slot=ticket.slot, worker=self._worker,
            type=lease.type, setting=self.variant or lease.key, size=work.size,
            queued_s=max(started_s - ticket.received_s, 0.0), run_s=took_s, outcome=outcome,
        )  # fmt: skip
        return Send(COMPLETIONS, done, completion_slot(self._pipeline, lease.task, work.origin))
