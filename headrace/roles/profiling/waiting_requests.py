"""The requests that a profiler has taken: their order, which are void, what to commit."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from schemas.codec.single_object import CodecError, decode
from schemas.records import ProfileRequest
from streams.kafka.kafka_client import available

REQUESTS_AT_ONCE = 100
MOST_SEARCHES = 1000  # whose newest steps are known


@dataclass(slots=True)
class WaitingRequests:
    """Requests taken and not run. A later step of a search voids its earlier ones.

    ``deferred`` are those whose samples were not there; others are run meanwhile.
    """

    requests: list[tuple[TopicPartition, ProfileRequest]] = field(default_factory=list)
    deferred: list[tuple[TopicPartition, ProfileRequest]] = field(default_factory=list)
    _newest: dict[str, int] = field(default_factory=dict)  # step by search, the last asked behind

    def take(self, place: TopicPartition, request: ProfileRequest) -> None:
        """Queue a request."""
        self._newest[request.search] = max(request.step, self._newest.pop(request.search, 0))
        if len(self._newest) > MOST_SEARCHES:
            del self._newest[next(iter(self._newest))]
        self.requests.append((place, request))

    def next(self, now_s: float) -> tuple[TopicPartition, ProfileRequest | None] | None:
        """Return the next request with its place, None in its stead if it is void."""
        if not self.requests:
            return None
        place, request = self.requests.pop(0)
        void = request.expires_s < now_s or request.step < self._newest.get(request.search, 0)
        return place, None if void else request

    def resume(self) -> None:
        """Queue the deferred requests again."""
        self.requests, self.deferred = [*self.deferred, *self.requests], []

    def committed(self, place: TopicPartition) -> TopicPartition:
        """Return what to commit after a request: the first one of its partition that is deferred,
        else the one behind ``place``'s."""
        same = [at.offset - 1 for at, _ in self.deferred if at.partition == place.partition]
        return TopicPartition(place.topic, place.partition, min([place.offset, *same]))

    def drop(self, partitions: Sequence[TopicPartition]) -> None:
        """Forget the requests of partitions that another profiler reads now."""
        gone = {each.partition for each in partitions}
        self.requests = [each for each in self.requests if each[0].partition not in gone]
        self.deferred = [each for each in self.deferred if each[0].partition not in gone]


def take_requests(reader: Consumer, waiting: WaitingRequests, timeout_s: float) -> None:
    """Queue the requests that have come, after a wait for the first one."""
    for message in available(reader, timeout_s, REQUESTS_AT_ONCE):
        if message.error():
            continue
        place = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
        try:
            record = decode(message.value() or b"")
        except CodecError:
            continue
        if isinstance(record, ProfileRequest):
            waiting.take(place, record)
