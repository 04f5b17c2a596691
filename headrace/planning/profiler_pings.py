"""Wait until a pipeline's profilers answer: a request for no sample is answered at once.

A profiler takes requests once it has loaded its operators. Until then a search would wait for it
within its deadline.
"""

import time
from collections.abc import Callable, Collection

from control.problem.sample_sets import PING
from control.problem.session_space import SessionSpace
from headrace.client.topic_clients import Tail, decoded
from headrace.errors import Unsuccessful
from schemas.codec.single_object import encode
from schemas.effects import PROFILE_REQUESTS, PROFILE_RESULTS
from schemas.records import ProfileRequest, ProfileResult
from streams.kafka.admin.topic_admin import partitions_of
from streams.kafka.kafka_client import producer
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical

POLL_S = 0.05
ASK_AGAIN_S = 15.0  # a profiler that starts behind its requests may not see them


class ProfilerPings:
    """Requests for no sample on every partition, and the profilers that have answered them."""

    def __init__(self, kafka: KafkaConfig, pipeline: str, sessions: SessionSpace) -> None:
        self.answered: set[str] = set()  # names of profilers
        self.partitions = partitions_of(kafka, physical(pipeline, PROFILE_REQUESTS))
        self._pipeline, self._space = pipeline, sessions.space
        self._producer = producer(kafka)
        self._tail = Tail(kafka, physical(pipeline, PROFILE_RESULTS))
        self._ask_s = 0.0

    def take(self) -> None:
        """Ask again if it is time, and read the new answers."""
        now = time.monotonic()
        if now >= self._ask_s:
            self._ask_s = now + ASK_AGAIN_S
            self._ask()
        for value in self._tail.take(POLL_S):
            record = decoded(value)
            if (
                isinstance(record, ProfileResult)
                and record.first == PING
                and record.space == self._space.digest
            ):
                self.answered.add(record.profiler)

    def _ask(self) -> None:
        # A set without a name: every profiler answers at once, with an error that is ignored.
        request = ProfileRequest(
            search="ready", pipeline=self._pipeline, space=self._space.digest,
            options=self._space.named(0), sample_set="", first=PING, upto=PING,
            step=0, expires_s=time.time() + ASK_AGAIN_S,
        )  # fmt: skip
        topic = physical(self._pipeline, PROFILE_REQUESTS)
        for partition in range(self.partitions):
            self._producer.produce(topic, encode(request), partition=partition)
        self._producer.flush(1.0)

    def close(self) -> None:
        """Close the Kafka clients."""
        self._producer.flush(1.0)
        self._tail.close()


def await_profilers(
    kafka: KafkaConfig, pipeline: str, sessions: SessionSpace, within_s: float,
    tend: Callable[[], None], names: Collection[str] = (),
) -> None:  # fmt: skip
    """Wait until each of the profilers ``names`` that can have a partition answers; without names,
    until one answers.

    ``tend`` is called while it waits. Raises ``BrokerError``, and ``Unsuccessful`` after
    ``within_s`` seconds.
    """
    until = time.monotonic() + within_s
    pings = ProfilerPings(kafka, pipeline, sessions)
    wanted = min(len(names) or 1, pings.partitions)
    try:
        while len(pings.answered & set(names or pings.answered)) < wanted:
            if time.monotonic() > until:
                who = f"profilers {', '.join(names)}" if names else "no profiler"
                have = "have not" if names else "has"
                raise Unsuccessful(
                    f"{who} of {pipeline} {have} answered within {within_s:g} s; "
                    "see their logs, or start one with `headrace profiler FILE`"
                )
            tend()
            pings.take()
    finally:
        pings.close()
