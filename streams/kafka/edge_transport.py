"""Kafka transport of an ingress at the edge: its input may be on another broker.

Everything except the input topic is on the central broker. The input has a consumer and a ledger of
its own, and is read and committed as by any ingress. Like those of the workers' slots, its offsets
wait until the central broker has confirmed the sends of the turn.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition
from msgspec.structs import replace

from streams.codecs.wire import Fetched
from streams.kafka.hand_overs import HandOver
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.offset_ledger import NO_EPOCH, Commit, OffsetLedger
from streams.kafka.reading.partition_reader import PartitionReader
from streams.kafka.transport import LOOK_S, RENEW_S, KafkaTransport
from streams.topics import Place

SHARE_S = 0.002  # longest wait of one reader while the other may have records
# A query is identified by its partition and place, whichever broker holds its input topic.
# Partition ``p`` of site ``n`` (from 1) is numbered ``n * SITE_PARTITIONS + p``; the central topic
# is site 0.
SITE_PARTITIONS = 4096
MOST_SITES = (2**31 - 1) // SITE_PARTITIONS - 1  # partitions are 32-bit numbers


@dataclass(frozen=True, slots=True)
class EdgeInput:
    """The input topic of an edge: its broker, name, and the group that commits it.

    Everywhere else, its partition ``p`` is numbered ``first + p``.
    """

    kafka: KafkaConfig
    topic: str
    group: str
    first: int = 0


class EdgeTransport(KafkaTransport):
    """A transport to the central broker that reads one topic, the input, from another broker."""

    def __init__(self, config: KafkaConfig, group: str, source: EdgeInput) -> None:
        super().__init__(config, group)
        self._source = source
        self._input_epochs: dict[Place, int] = {}
        there, name = source.kafka, source.group
        self._input_ledger = OffsetLedger(there, name, consumer(there, name))
        ledger = self._input_ledger
        self._input = PartitionReader(
            there, name, {}, ledger.peek, ledger.pass_markers, self._input_epochs
        )
        self._fetched = self._reader  # the reader of the last fetch
        self._input_look_s = self._input_renew_s = 0.0

    # ------------------------------------------------------------------ reading

    def fetch(self, timeout_s: float) -> list[Fetched]:
        """Fetch from both brokers in turn, until one has records or the time-out has passed."""
        # A busy input, which has records within every wait, must not keep plans waiting.
        if self._fetched is self._input and (found := self._fetch_from(self._reader, 0.0)):
            return found
        for _ in range(max(1, round(timeout_s / (2 * SHARE_S)))):
            for reader in (self._input, self._reader):
                if found := self._fetch_from(reader, min(timeout_s, SHARE_S)):
                    return found
        return []

    def _fetch_from(self, reader: PartitionReader, timeout_s: float) -> list[Fetched]:
        found = reader.fetch(timeout_s)
        if found:
            self._fetched = reader
        return [self._renamed(each) for each in found]

    @property
    def assigned(self) -> int:
        """The number of the last assignment that the reader of the last fetch has carried out."""
        return self._fetched.assigned

    def pause(self, places: Iterable[Place], among: Iterable[Place]) -> None:
        """Pause exactly ``places`` among the slots in ``among``; resume the others of them."""
        places, among = list(places), list(among)
        super().pause(self._central(places), self._central(among))
        self._input.pause(self._there(places), self._there(among))

    def assign(self, new: Iterable[Place], gone: Iterable[Place], commits: bool) -> int:
        """Change the slots that are read, as in every transport."""
        gone = list(gone)
        left = self._there(gone)
        if left:
            self._input.leave(left, self._asked + 1)
        return super().assign(new, gone, commits)

    def _begin(self, change: HandOver) -> None:
        def read_from(places: list[TopicPartition]) -> None:
            self._input.read(places, change.number)

        self._input_ledger.release(self._there(change.gone))
        new = self._there(change.new)
        if new:
            self._input_ledger.look_up(self._source.topic, [slot for _, slot in new], read_from)
        else:
            super()._begin(change)

    # ------------------------------------------------------------------ committing

    def done(self, place: Place, offset: int, note: str) -> None:
        """Report a slot done below ``offset``, to be committed once the turn is confirmed."""
        super().done(place, offset, note)
        for there in self._there([place]):
            epoch = self._input_epochs.get(there, NO_EPOCH)
            self._turn.done[place] = Commit(offset, note, epoch)

    def end_turn(self, now: float) -> None:
        """End the turn on the central broker, and maintain the input's."""
        super().end_turn(now)
        self._input_ledger.check()
        if now >= self._input_look_s:
            self._input_look_s = now + LOOK_S
            self._input.look()
            if self._input_ledger.unsettled:
                self._input_ledger.commit({})
        if now >= self._input_renew_s:
            self._input_renew_s = now + RENEW_S
            self._input_ledger.renew()

    def _commit(self) -> None:
        ready, self._ready = self._ready, {}
        here: dict[Place, Commit] = {}
        there: dict[Place, Commit] = {}
        for place, commit in ready.items():
            found = self._there([place])
            (there if found else here)[found[0] if found else place] = commit
        self._ledger.commit(here)
        if there:
            self._input_ledger.commit(there)

    def lag(self, timeout_s: float) -> dict[Place, int]:
        """Return the backlog of each slot read with commits, the input's included."""
        return super().lag(timeout_s) | self._input.lag(self._input_ledger.confirmed, timeout_s)

    @property
    def commit_failures(self) -> int:
        """The number of refused commits, on both brokers."""
        return super().commit_failures + self._input_ledger.failures

    def close(self) -> None:
        """Flush the sends, commit, and close the clients of both brokers."""
        super().close()
        self._input.close()
        self._input_ledger.close()

    # ------------------------------------------------------------------ names

    def _there(self, places: Iterable[Place]) -> list[Place]:
        """Return the places that are the input's, in its broker's numbering."""
        topic, first = self._source.topic, self._source.first
        return [(name, slot - first) for name, slot in places if name == topic]

    def _central(self, places: Iterable[Place]) -> list[Place]:
        return [place for place in places if place[0] != self._source.topic]

    def _renamed(self, record: Fetched) -> Fetched:
        if record.topic != self._source.topic:
            return record
        return replace(record, slot=record.slot + self._source.first)


def first_partition(site: int) -> int:
    """Return the number of a site's first partition."""
    return site * SITE_PARTITIONS


def shifted(places: Mapping[int, int], by: int) -> dict[int, int]:
    """Return places by partition, with shifted partition numbers."""
    return {partition + by: place for partition, place in places.items()}
