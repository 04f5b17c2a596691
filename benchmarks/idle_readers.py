"""Readers with a worker's client settings, to measure the broker's load by idle workers.

A worker reads its slot and the plans with one consumer. It always has a fetch request open, even if
there is little to read, and commits up to five times a second while it works.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from schemas.effects import PLANS
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.transport import COMMIT_S
from streams.topics import physical

STATISTICS_MS = 500


class IdleReaders:
    """Consumers of one group, each with one of ``places`` (topic, partition) and the plans."""

    def __init__(self, kafka: KafkaConfig, group: str, places: Sequence[tuple[str, int]]) -> None:
        self._requests: dict[int, Counter[str]] = {}
        self._places = places
        self._clients = [
            self._reader(number, kafka, group, place) for number, place in enumerate(places)
        ]

    def _reader(
        self, number: int, kafka: KafkaConfig, group: str, place: tuple[str, int]
    ) -> Consumer:
        def count(statistics: str) -> None:
            brokers = json.loads(statistics)["brokers"].values()
            self._requests[number] = sum((Counter(each["req"]) for each in brokers), Counter())

        more: dict[str, Any] = {"statistics.interval.ms": STATISTICS_MS, "stats_cb": count}
        client = consumer(kafka, group, **more)
        read = [
            TopicPartition(*place, OFFSET_END),
            TopicPartition(physical("", PLANS), 0, OFFSET_END),
        ]
        client.assign(read)
        return client

    def wait(self, seconds: float, *, commit: bool) -> None:
        """Serve the clients for ``seconds``; each commits every 0.2 s if ``commit``."""
        end_s = time.monotonic() + seconds
        offset = 0
        while (now := time.monotonic()) < end_s:
            offset += 1
            for client, place in zip(self._clients, self._places, strict=True):
                client.poll(0)
                if commit:
                    client.commit(offsets=[TopicPartition(*place, offset)], asynchronous=True)
            time.sleep(max(0.0, now + COMMIT_S - time.monotonic()))

    @property
    def requests(self) -> Counter[str]:
        """The requests of all the clients so far, by the name of Kafka's protocol."""
        return sum(self._requests.values(), Counter())

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients:
            client.close()
