"""Watch a rig while faults happen: the memory of its roles, and what ingress and egress commit."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition

from schemas.effects import OUTPUTS, QUERIES
from streams.kafka.admin.topic_admin import partitions_of
from streams.kafka.kafka_client import consumer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import done_offsets
from streams.topics import physical

EVERY_S = 0.5
ANSWERS_WITHIN_S = 1.0
READS = {"ingress": QUERIES, "egress": OUTPUTS}  # the slots of workers change hands, and go back


class Watch:
    """Samples on a thread until closed.

    ``memory`` is the most bytes that a process of a role had resident, by role. ``commits`` are the
    committed offsets of ingress and egress by (group, partition), each once, in order.
    """

    def __init__(
        self, config: KafkaConfig, pipeline: str, pids: Callable[[], Mapping[str, int]]
    ) -> None:
        self._pids = pids
        self._readers = {
            group: consumer(config, f"{pipeline}.{group}", log_level=0) for group in READS
        }
        self._places = {
            group: [
                TopicPartition(physical(pipeline, topic), each)
                for each in range(partitions_of(config, physical(pipeline, topic)))
            ]
            for group, topic in READS.items()
        }
        self.memory: dict[str, int] = {}
        self.commits: dict[tuple[str, int], list[int]] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the sampling."""
        self._ends.set()
        self._thread.join()
        for reader in self._readers.values():
            reader.close()

    def _run(self) -> None:
        while not self._ends.wait(EVERY_S):
            for role, pid in dict(self._pids()).items():
                with suppress(psutil.Error):
                    resident = psutil.Process(pid).memory_info().rss
                    self.memory[role] = max(resident, self.memory.get(role, 0))
            for group, reader in self._readers.items():
                self._look(group, reader)

    def _look(self, group: str, reader: Consumer) -> None:
        try:
            found = done_offsets(reader, self._places[group], ANSWERS_WITHIN_S)
        except KafkaException:
            return  # the broker is away, which is a fault of the run
        for (_, partition), offset in found.items():
            offsets = self.commits.setdefault((group, partition), [])
            if offsets[-1:] != [offset]:
                offsets.append(offset)
