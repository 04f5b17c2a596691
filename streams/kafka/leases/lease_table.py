"""Leases of egress partitions: who may write answers, and when a former holder's have expired.

Egresses write claims, renewals and releases to one partition of the ``leases`` topic. The broker
orders them and stamps their times, so every reader folds the same table:

* the newest claim of a partition holds it; renewals by an earlier holder are void;
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


class Act(StrEnum):
    """The act that a lease record states."""

    CLAIM = "claim"
    RENEW = "renew"
    RELEASE = "release"


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the ``leases`` topic, in JSON; ``holder`` identifies one process."""

    holder: str
    act: Act
    partitions: tuple[int, ...]


@dataclass(slots=True)
class _Lease:
    holder: str
    renewed_s: float
    free_s: float  # from then on nothing of earlier holders can be written
    released: bool = False

    def expires_s(self) -> float:
        """Return the time from which nothing of any holder so far can be written."""
        return self.free_s if self.released else max(self.free_s, self.renewed_s + LEASE_S + SKEW_S)


class LeaseTable:
    """The leases by partition; ``take`` folds the records of the topic in order."""

    def __init__(self) -> None:
        self._leases: dict[int, _Lease] = {}

    def take(self, record: LeaseRecord, at_s: float) -> None:
        """Fold a record that the broker stamped with ``at_s``."""
        for partition in record.partitions:
            lease = self._leases.get(partition)
            held = lease is not None and lease.holder == record.holder
            if record.act is Act.CLAIM and not held:
                free_s = 0.0 if lease is None else lease.expires_s()
                self._leases[partition] = _Lease(record.holder, at_s, free_s)
            elif lease is None or not held or lease.released:
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


class LeaseHolder:
    """A process's view of the leases of ``partitions``, as it reads the topic back.

    Times ``now`` are its own, monotonic; those in records are the broker's.
    """

    __slots__ = ("_partitions", "_table", "free_at_s", "fresh_until_s", "held", "name", "stamp_s")

    def __init__(self, name: str, partitions: Sequence[int]) -> None:
        self.name = name
        self._partitions = tuple(partitions)
        self._table = LeaseTable()
        self.held = False  # its claim was read back
        self.free_at_s = 0.0  # from then on nothing of earlier holders can be written
        self.fresh_until_s = float("-inf")  # so long the broker takes records stamped ``stamp_s``
        self.stamp_s = 0.0

    def record(self) -> LeaseRecord:
        """Return the claim or renewal to write next."""
        act = Act.RENEW if self.held else Act.CLAIM
        return LeaseRecord(holder=self.name, act=act, partitions=self._partitions)

    def release(self) -> LeaseRecord:
        """Return the record by which a successor need not wait."""
        return LeaseRecord(holder=self.name, act=Act.RELEASE, partitions=self._partitions)

    def rivals(self, record: LeaseRecord) -> bool:
        """Return whether a record shows another process that holds one of the partitions."""
        shared = not set(record.partitions).isdisjoint(self._partitions)
        return shared and record.act is not Act.RELEASE and record.holder != self.name

    def take(self, record: LeaseRecord, at_s: float, now: float) -> None:
        """Fold a record that the broker stamped with ``at_s``; raise ``LeaseLost``."""
        self._table.take(record, at_s)
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
            self.held = True


def encoded(record: LeaseRecord) -> bytes:
    """Return the record as JSON."""
    return msgspec.json.encode(record)


def read_lease(value: bytes) -> LeaseRecord | None:
    """Return the record, None if the bytes are none."""
    try:
        return msgspec.json.decode(value, type=LeaseRecord)
    except msgspec.DecodeError:
        return None
