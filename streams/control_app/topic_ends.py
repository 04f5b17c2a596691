"""Offsets of the input topic and of the shared control topics; a stalled consumer of reports."""

from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

from schemas.effects import PLANS, PROFILE_RESULTS, QUERIES, REPORTS
from schemas.pipeline import Pipeline
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_contents import done_offsets, log_offsets, watermarks
from streams.topics import physical

WAIT_S = 2.0  # a later answer would be obsolete


class InputTopic:
    """Offset queries to the broker; every method blocks."""

    def __init__(self, kafka: KafkaConfig, pipeline: Pipeline) -> None:
        self._topic = physical(pipeline.name, QUERIES)
        more = (PROFILE_RESULTS,) if pipeline.sessions else ()
        self._read = {each: physical(pipeline.name, each) for each in (REPORTS, PLANS, *more)}
        self._reader = consumer(kafka, f"{pipeline.name}.ingress")
        self._places: list[TopicPartition] = []

    def ends(self) -> dict[int, int]:
        """Return the log-end offsets by partition; raise ``BrokerError``."""
        try:
            if not self._places:
                found = self._reader.list_topics(self._topic, timeout=WAIT_S).topics[self._topic]
                self._places = [TopicPartition(self._topic, p) for p in found.partitions]
            ends = log_offsets(self._reader, self._places, OFFSET_END, WAIT_S)
        except KafkaException as error:
            raise BrokerError(
                _no_answer("how many queries stand on the input topic", error)
            ) from error
        return {partition: offset for (_, partition), offset in ends.items()}

    def shared_ends(self) -> dict[str, int]:
        """Return the end offsets of the reports and plans topics, and with sessions of the results
        of profilers; raise ``BrokerError``."""
        places = {each: TopicPartition(topic, 0) for each, topic in self._read.items()}
        return {each: watermarks(self._reader, at, WAIT_S)[1] for each, at in places.items()}

    def done(self) -> dict[int, int]:
        """Return ingress's committed offsets by partition; raise ``BrokerError``."""
        try:
            done = done_offsets(self._reader, self._places, WAIT_S)
        except KafkaException as error:
            raise BrokerError(_no_answer("how far ingress is", error)) from error
        return {partition: offset for (_, partition), offset in done.items()}


def _no_answer(what: str, error: KafkaException) -> str:
    return f"the broker did not say {what}: {error.args[0].str()}"


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
