"""The lease of a simulated egress: the product's rules over the faulty broker.

As streams/kafka/leases/egress_lease.py: it listens for a rival, claims, and renews every
``RENEW_S``; every record is stamped by the broker, and read back before it counts.
"""

from collections.abc import Callable, Sequence

from benchmarks.schedules.faulty_broker import HOP_S, RETRY_S, Agenda, Broker, Link
from schemas.effects import LEASES
from streams.fencing import LeaseLost
from streams.kafka.leases.egress_lease import LISTEN_S, POLL_S, RENEW_S
from streams.kafka.leases.lease_table import (
    LEASE_S,
    SKEW_S,
    LeaseHolder,
    LeaseRecord,
    encoded,
    read_lease,
)
from streams.topics import physical


class FaultyLease:
    """The lease of one process; ``runs`` says whether the process is neither dead nor frozen.

    ``lost`` is the error that ends the process. With ``careless`` it neither waits for an earlier
    holder's lease to expire nor stamps by its own: an error, for tests of the checker.
    """

    def __init__(
        self,
        agenda: Agenda,
        broker: Broker,
        link: Link,
        life: str,
        partitions: Sequence[int],
        runs: Callable[[], bool],
        *,
        careless: bool = False,
    ) -> None:
        self._agenda, self._broker, self._link, self._runs = agenda, broker, link, runs
        self._careless = careless
        self._place = (physical(broker.pipeline.name, LEASES), 0)
        self._holder = LeaseHolder(life, partitions)
        self._history: int | None = None  # the topic's end when it was first read
        self._writing = False
        self._write_s = 0.0
        self._quiet_s = agenda.now + LISTEN_S
        self.rival = ""  # a living holder
        self.lost: LeaseLost | None = None
        self.ended = False
        self._poll()

    @property
    def stamp_s(self) -> float:
        """The time stamp of answers."""
        return self._agenda.now if self._careless else self._holder.stamp_s

    @property
    def fresh(self) -> bool:
        """Whether the broker would take an answer with the present stamp."""
        return self._careless or self._agenda.now < self._holder.fresh_until_s

    @property
    def quiet(self) -> bool:
        """Whether it has listened for long enough to have heard a living holder."""
        return self._history is not None and self._agenda.now >= self._quiet_s

    @property
    def acquired(self) -> bool:
        """Whether no answer of an earlier holder can be written any more."""
        waited = self._careless or self._agenda.now >= self._holder.free_at_s
        return self._holder.held and waited

    def _poll(self) -> None:
        """Read the topic, and write when a record is due, as the product's thread does."""
        if self.ended:
            return
        if self._runs():
            if self._broker.reaches(self._link):
                self._read()
            due = self.quiet and not self.rival and self._agenda.now >= self._write_s
            if due and not self._writing and self.lost is None:
                self._write_s, self._writing = self._agenda.now + RENEW_S, True
                self._write(self._holder.record())
        self._agenda.after(POLL_S, self._poll)

    def _read(self) -> None:
        log = self._broker.readable(self._place)
        if self._history is None:
            self._history = len(log)
            # The topic keeps less than the schedule's length: it begins with the records that may
            # count.
            since_s = self._agenda.now - LEASE_S - SKEW_S
            self._holder.next = sum(record.at_s < since_s for record in log)
        while (offset := self._holder.next) < len(log) and self.lost is None:
            fetched = log[offset]
            record = read_lease(fetched.value or b"")
            assert record is not None
            if offset >= self._history and not self.quiet and self._holder.rivals(record):
                self.rival = record.holder
            try:
                self._holder.take(record, offset, fetched.at_s, self._agenda.now)
            except LeaseLost as error:
                self.lost = error

    def _write(self, record: LeaseRecord) -> None:
        """Send a record until it lands; the next one follows its confirmation."""

        def attempt() -> None:
            if self.ended:
                return  # with its process
            if self._runs() and self._broker.up and self._link.out:
                self._broker.append(self._place, b"", encoded(record), self._agenda.now)
                confirm()
            else:
                self._agenda.after(RETRY_S, attempt)

        def confirm() -> None:
            if self._runs() and self._broker.reaches(self._link):
                self._writing = False
            elif not self.ended:
                self._agenda.after(RETRY_S, confirm)

        self._agenda.after(HOP_S + self._link.delay_s, attempt)
