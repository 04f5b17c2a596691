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

from streams.topics import LEASE_MS

LEASE_S = LEASE_MS / 1e3
SKEW_S = 0.5  # the brokers' clocks differ by less


class Act(StrEnum):
    """What a lease record does."""

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


def encoded(record: LeaseRecord) -> bytes:
    """Return the record as JSON."""
    return msgspec.json.encode(record)


def read_lease(value: bytes) -> LeaseRecord | None:
    """Return the record, None if the bytes are none."""
    try:
        return msgspec.json.decode(value, type=LeaseRecord)
    except msgspec.DecodeError:
        return None
