"""The requests that a profiler has taken: their order, which are void, what to commit.

A request states when it expires by the clock of the searching host, which may differ from the
profiler's. So a request expires once the newest one of its search was taken ``VALID_S`` ago, and
sooner by as much as it is older than that one.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from schemas.codec.single_object import CodecError, decode
from schemas.records import ProfileRequest
from streams.kafka.kafka_client import available

REQUESTS_AT_ONCE = 100
MOST_SEARCHES = 1000  # whose newest requests are known
VALID_S = 60.0  # of a search's newest request


@dataclass(frozen=True, slots=True)
class _Newest:
    """Of a search: its last step, and its newest request's ``expires_s``, taken at ``taken_s``."""

    step: int
    expires_s: float
    taken_s: float


@dataclass(slots=True)
class WaitingRequests:
    """Requests taken and not run. A later step of a search voids its earlier ones.

    ``now_s`` is the profiler's own time, on any clock that does not step.

    ``deferred`` are those whose samples were not there; others are run meanwhile.
    """

    requests: list[tuple[TopicPartition, ProfileRequest]] = field(default_factory=list)
    deferred: list[tuple[TopicPartition, ProfileRequest]] = field(default_factory=list)
    _newest: dict[str, _Newest] = field(default_factory=dict)  # by search, the last asked behind

    def take(self, place: TopicPartition, request: ProfileRequest, now_s: float) -> None:
        """Queue a request."""
        before = self._newest.pop(request.search, None)
        step = request.step if before is None else max(request.step, before.step)
        self._newest[request.search] = _Newest(step, request.expires_s, now_s)
        if len(self._newest) > MOST_SEARCHES:
            del self._newest[next(iter(self._newest))]
        self.requests.append((place, request))

    def next(self, now_s: float) -> tuple[TopicPartition, ProfileRequest | None] | None:
        """Return the next request with its place, None in its stead if it is void."""
        if not self.requests:
            return None
        place, request = self.requests.pop(0)
        return place, None if self._void(request, now_s) else request

    def _void(self, request: ProfileRequest, now_s: float) -> bool:
        newest = self._newest.get(request.search)
        if newest is None:
            return False
        older_s = newest.expires_s - request.expires_s
        return request.step < newest.step or now_s - newest.taken_s + older_s > VALID_S

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
            waiting.take(place, record, time.monotonic())
