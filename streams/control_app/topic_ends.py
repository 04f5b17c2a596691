"""Offsets of the input topic and of the shared control topics; a stalled consumer of reports."""

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Protocol

from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

from schemas.effects import COMMAND_RESULTS, PLANS, PROFILE_RESULTS, QUERIES, REPORTS, SESSIONS
from schemas.pipeline import Pipeline
from streams.control_app.control_writer import SharedLog
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import FORBIDDEN, BrokerError
from streams.kafka.topic_contents import (
    TELLS_ENDS,
    done_offsets,
    log_offsets,
    records_between,
)
from streams.live.steady_clock import Clock
from streams.topics import SHARED, physical

WAIT_S = 2.0  # a later answer would be obsolete
LOOK_S = 1.0  # between two looks for partitions added to the input topic


class Inputs(SharedLog, Protocol):
    """Offsets of the input topic, and the ends of the shared topics by logical name.

    The methods block and raise ``BrokerError``.
    """

    def ends(self) -> dict[int, int]: ...
    def done(self) -> dict[int, int]: ...
    def shared_ends(self) -> dict[str, int]: ...


class InputTopic:
    """Reads offsets from the broker; every method blocks."""

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline, clock: Clock) -> None:
        self._kafka, self._topic = kafka, physical(pipeline.name, QUERIES)
        more = (SESSIONS, PROFILE_RESULTS) if pipeline.sessions else ()
        shared = (REPORTS, PLANS, COMMAND_RESULTS, *more)
        self._read = {each: physical(pipeline.name, each) for each in shared}
        self._name = pipeline.name.encode()
        self._reader = consumer(kafka, f"{pipeline.name}.ingress", **TELLS_ENDS)
        self._places: list[TopicPartition] = []
        self._clock, self._look_s = clock, float("-inf")

    def ends(self) -> dict[int, int]:
        """Return the log-end offsets by partition; raise ``BrokerError``."""
        try:
            if not self._places or self._clock() >= self._look_s:
                found = self._reader.list_topics(self._topic, timeout=WAIT_S).topics[self._topic]
                self._places = [TopicPartition(self._topic, p) for p in found.partitions]
                self._look_s = self._clock() + LOOK_S
            ends = log_offsets(self._reader, self._places, OFFSET_END, WAIT_S)
        except KafkaException as error:
            what = f"how many queries stand on topic {self._topic!r}"
            raise _no_answer(self._kafka, what, error) from error
        return {partition: offset for (_, partition), offset in ends.items()}

    def shared_ends(self) -> dict[str, int]:
        """Return the end offsets of the topics of reports, plans and command results, and with
        sessions also of sessions and profilers' results; raise ``BrokerError``."""
        return self._ends_of(self._read, "where the shared topics end")

    def written_by_others(
        self, since: Mapping[str, int], own: Collection[tuple[str, int]]
    ) -> tuple[Mapping[str, int], bool]:
        """Return the end offsets of the logical topics in ``since``, and whether another writer has
        added a record of this pipeline since then; ``own`` are (topic, offset). Raise
        ``BrokerError``."""
        ends = self._ends_of(since, "whether another control app writes")
        new = {each: sum(topic == each for topic, _ in own) for each in since}
        grown = [each for each in since if ends[each] - since[each] > new[each]]
        return ends, any(self._foreign(each, since[each], ends[each], own) for each in grown)

    def _ends_of(self, logical: Iterable[str], what: str) -> dict[str, int]:
        """Return the end offsets of shared topics in one request; errors quote ``what``."""
        places = {each: TopicPartition(self._read[each], 0) for each in logical}
        try:
            found = log_offsets(self._reader, places.values(), OFFSET_END, WAIT_S)
        except KafkaException as error:
            raise _no_answer(self._kafka, what, error) from error
        return {each: found[place.topic, 0] for each, place in places.items()}

    def _foreign(self, topic: str, start: int, end: int, own: Collection[tuple[str, int]]) -> bool:
        # Other pipelines write to shared topics, too: a key is PIPELINE/EPOCH or PIPELINE/COMMAND.
        shared = topic in SHARED
        place = TopicPartition(self._read[topic], 0, start)
        # Read all of them: an unfinished reading continues in the background.
        messages = [*records_between(self._reader, place, end, WAIT_S)]
        return any(
            (not shared or (message.key() or b"").partition(b"/")[0] == self._name)
            and (topic, message.offset()) not in own
            for message in messages
        )

    def done(self) -> dict[int, int]:
        """Return ingress's committed offsets by partition; raise ``BrokerError``."""
        try:
            done = done_offsets(self._reader, self._places, WAIT_S)
        except KafkaException as error:
            raise _no_answer(self._kafka, "how far ingress is", error) from error
        return {partition: offset for (_, partition), offset in done.items()}


def _no_answer(kafka: KafkaConfig, what: str, error: KafkaException) -> BrokerError:
    cause = error.args[0]
    text = f"the broker did not say {what}: {cause.str()}"
    if cause.code() in FORBIDDEN:
        text += f"; {kafka.who} lacks a right that `headrace acls FILE` prints for the role control"
    return BrokerError(text)


class AddedPartitions:
    """The queries that partitions added to the input topic held when they were found. They came
    since the last look for partitions, and to count them all at once would show a jump of demand.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[int, int] = {}

    def held(self, ends: Mapping[int, int]) -> int:
        """Return their number; ``ends`` are the log-end offsets by partition."""
        if not self._held:
            self._held = dict.fromkeys(ends, 0)
        for partition, end in ends.items():
            self._held.setdefault(partition, end)
        return sum(self._held.values())


UNREAD_S = 10.0  # a partition whose queries are not read for this long has no ingress
REMIND_S = 300.0  # between two reports of a partition


class UnreadPartitions:
    """Finds partitions of the input topic that hold queries and have no new commits, as when one of
    several ingresses is missing, waits for copies of a topic that it writes, or is throttled."""

    __slots__ = ("_done", "_told_s")

    def __init__(self) -> None:
        self._done: dict[int, tuple[int, float]] = {}  # the commit, unchanged since
        self._told_s: dict[int, float] = {}  # by partition

    def look(self, ends: Mapping[int, int], done: Mapping[int, int], now: float) -> dict[int, int]:
        """Return the waiting queries by unread partition, each at most once in ``REMIND_S``: an
        ingress that a quota throttles commits something now and then.

        ``ends`` and ``done`` are log-end and committed offsets at ``now`` (seconds).
        """
        found: dict[int, int] = {}
        for partition, end in ends.items():
            offset = done.get(partition, 0)
            before, since_s = self._done.get(partition, (-1, now))
            if offset != before or offset >= end:
                self._done[partition] = offset, now
            elif now > max(since_s + UNREAD_S, self._told_s.get(partition, -inf) + REMIND_S):
                self._told_s[partition] = now
                found[partition] = end - offset
        return found

    def blind(self) -> None:
        """Begin anew, as after a time in which ingress could not read either."""
        self._done = {}


def unread_text(unread: Mapping[int, int]) -> str:
    """Return which partitions are unread, how many queries wait there, and the remedy."""
    partitions = ", ".join(map(str, sorted(unread)))
    return (
        f"no ingress has finished a query of partition {partitions} of the input topic for "
        f"{UNREAD_S:g} s, where {sum(unread.values())} queries wait; start the "
        "missing ingress (`headrace up`, or its --share), or see in its log what it waits for"
    )


STALLED_S = (
    10.0  # the app restarts if its consumer delivers no report for this long while some exist
)


class ReportDelivery:
    """Compares the end of the reports topic with the reports delivered."""

    __slots__ = ("_delivered", "_end", "_since_s")

    def __init__(self) -> None:
        self._delivered = True
        self._end = 0
        self._since_s = 0.0

    def delivered(self) -> None:
        """Record a delivered report."""
        self._delivered = True

    def stalled(self, end: int, now: float, within_s: float = STALLED_S) -> bool:
        """Return whether reports were written for more than ``within_s`` without a delivery;
        ``end`` is the topic's end offset at ``now``."""
        if self._delivered or end <= self._end:
            self._delivered, self._end, self._since_s = False, max(end, self._end), now
            return False
        return now - self._since_s > within_s
