"""Leases of egress partitions: the right to write answers, and when a former holder's has expired.

Egresses write claims, renewals and releases to one partition of the ``leases`` topic. The broker
orders them and stamps their times, so every reader folds the same table:

* the newest claim of a partition holds it; renewals by an earlier holder are void. A claim's number
  is its offset. Renewals and releases include the number of their claim, so that a reader of a part
  of the log without the claim still knows the holder;
* a holder stamps its answers with the time of its newest claim or renewal that it has read back;
* the broker refuses an answer whose stamp is older than ``LEASE_S`` (``streams/topics.py``);
* so ``LEASE_S + SKEW_S`` after the last valid renewal of a former holder, none of its answers can
  be written any more, however long they were delayed on the way. A new holder waits until then
  before it reads the answers back and begins.

This is a lease with a fencing token (Gray and Cheriton, Leases, SOSP 1989) that the broker checks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from streams.fencing import LeaseLost
from streams.topics import LEASE_MS

LEASE_S = LEASE_MS / 1e3
SKEW_S = 0.5  # the brokers' clocks differ by less
NO_CLAIM = -1


class Act(StrEnum):
    """The act that a lease record states."""

    CLAIM = "claim"
    RENEW = "renew"
    RELEASE = "release"


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the ``leases`` topic, in JSON; ``holder`` identifies one process.

    ``claim`` is the offset of the holder's claim, in renewals and releases; ``NO_CLAIM`` in claims
    themselves.
    """

    holder: str
    act: Act
    partitions: tuple[int, ...]
    claim: int = NO_CLAIM


@dataclass(slots=True)
class _Lease:
    holder: str
    claim: int
    renewed_s: float
    free_s: float  # from this time on nothing of earlier holders can be written
    released: bool = False

    def expires_s(self) -> float:
        """Return the time from which nothing of any holder so far can be written."""
        return self.free_s if self.released else max(self.free_s, self.renewed_s + LEASE_S + SKEW_S)


class LeaseTable:
    """The leases by partition.

    ``take`` folds the records of the topic in order, starting at any record that is older than
    ``LEASE_S + SKEW_S``.
    """

    def __init__(self) -> None:
        self._leases: dict[int, _Lease] = {}

    def take(self, record: LeaseRecord, offset: int, at_s: float) -> None:
        """Fold the record at ``offset``, which the broker stamped with ``at_s``."""
        for partition in record.partitions:
            lease = self._leases.get(partition)
            held = lease is not None and lease.holder == record.holder
            if record.act is Act.CLAIM and not held:
                free_s = 0.0 if lease is None else lease.expires_s()
                self._leases[partition] = _Lease(record.holder, offset, at_s, free_s)
            elif lease is None or (not held and record.claim > lease.claim):
                self._leases[partition] = _claimed_unseen(record, at_s)
            elif not held or lease.released:
                continue  # void: another process has claimed the partition since
            elif record.act is Act.RELEASE:
                lease.released = True
            else:
                lease.renewed_s = max(lease.renewed_s, at_s)

    def renewed_s(self, holder: str, partitions: Sequence[int]) -> float | None:
        """Return the time of a holder's newest claim or renewal; None if it has lost or released
        a partition."""
        leases = [self._leases[p] for p in partitions if p in self._leases]
        if any(lease.holder != holder or lease.released for lease in leases):
            return None
        return min((lease.renewed_s for lease in leases), default=0.0)

    def free_s(self, partitions: Iterable[int]) -> float:
        """Return the time from which nothing of earlier holders can be written."""
        return max((self._leases[p].free_s for p in partitions if p in self._leases), default=0.0)


def _claimed_unseen(record: LeaseRecord, at_s: float) -> _Lease:
    """Return the lease of a holder whose claim was not read: earlier leases were void before
    ``at_s``."""
    free_s, released = at_s + LEASE_S + SKEW_S, record.act is Act.RELEASE
    return _Lease(record.holder, record.claim, at_s, free_s, released)


class LeaseHolder:
    """The leases of ``partitions`` as one process reads them back from the topic.

    Times ``now`` are the process's own, monotonic; those in records are the broker's.
    """

    __slots__ = (
        "_claim",
        "_partitions",
        "_table",
        "free_at_s",
        "fresh_until_s",
        "held",
        "name",
        "next",
        "stamp_s",
    )

    def __init__(self, name: str, partitions: Sequence[int]) -> None:
        self.name = name
        self._partitions = tuple(partitions)
        self._table = LeaseTable()
        self._claim = NO_CLAIM  # the offset of its claim
        self.next = 0  # the offset after the last record read; at first, the start
        self.held = False  # its claim was read back
        self.free_at_s = 0.0  # from this time on nothing of earlier holders can be written
        self.fresh_until_s = float("-inf")  # until then the broker takes ``stamp_s``
        self.stamp_s = 0.0

    def record(self) -> LeaseRecord:
        """Return the claim or renewal to write next."""
        return self._record(Act.RENEW if self.held else Act.CLAIM)

    def release(self) -> LeaseRecord:
        """Return the release, after which a successor need not wait."""
        return self._record(Act.RELEASE)

    def _record(self, act: Act) -> LeaseRecord:
        return LeaseRecord(
            holder=self.name, act=act, partitions=self._partitions, claim=self._claim
        )

    def rivals(self, record: LeaseRecord) -> bool:
        """Return whether a record shows another process that holds one of the partitions."""
        shared = not set(record.partitions).isdisjoint(self._partitions)
        return shared and record.act is not Act.RELEASE and record.holder != self.name

    def take(self, record: LeaseRecord | None, offset: int, at_s: float, now: float) -> None:
        """Fold the record at ``offset``, which the broker stamped with ``at_s``; None: not a lease
        record. Raise ``LeaseLost``."""
        if self.held and offset != self.next:
            raise LeaseLost(
                "records of leases were deleted before this egress read them, so another one may "
                "have had its partitions; it ends, and its next life reads what was answered"
            )
        self.next = offset + 1
        if record is None:
            return
        self._table.take(record, offset, at_s)
        renewed_s = self._table.renewed_s(self.name, self._partitions)
        if record.holder != self.name:
            if self.held and renewed_s is None:
                raise LeaseLost(
                    f"{record.holder} has taken over partitions of the outputs topic that this "
                    "egress held, so it ends; run one egress per share"
                )
            return
        if renewed_s is None:
            raise LeaseLost("another egress has claimed the same partitions; this one ends")
        self.stamp_s, self.fresh_until_s = renewed_s, now + LEASE_S / 2
        if record.act is Act.CLAIM:
            self.free_at_s = now + self._table.free_s(self._partitions) - at_s
            self._claim = offset if self._claim == NO_CLAIM else self._claim
            self.held = True


def encoded(record: LeaseRecord) -> bytes:
    """Return the record as JSON."""
    return msgspec.json.encode(record)


def read_lease(value: bytes) -> LeaseRecord | None:
    """Return the record, or None if the bytes are not one."""
    try:
        return msgspec.json.decode(value, type=LeaseRecord)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
