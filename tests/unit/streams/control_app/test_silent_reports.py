"""A reports topic that the control app's client has stopped reading."""

from typing import Any

from confluent_kafka import TopicPartition

from streams.control_app.report_reader import _look
from streams.kafka.reading.silent_slots import SilentSlots


class Client:
    """A consumer that records requests; the end offset at the broker is 9 everywhere."""

    def __init__(self) -> None:
        self.assigned: list[tuple[str, int, int]] = []

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return 0, 9

    def resume(self, places: list[TopicPartition]) -> None:
        pass

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        pass

    def list_topics(self, topic: str, timeout: float) -> None:
        pass

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self.assigned += [(p.topic, p.partition, p.offset) for p in places]


def test_it_is_assigned_anew_after_two_looks_without_a_report() -> None:
    client: Any = Client()
    silent = SilentSlots()
    silent.reads(("reports", 0), 5)
    silent.reads(("results", 0), 9)
    _look(client, silent)
    _look(client, silent)
    assert client.assigned == []
    _look(client, silent)
    assert client.assigned == [("reports", 0, 5)]
    silent.heard(("reports", 0), 8)
    for _ in range(3):
        _look(client, silent)
    assert len(client.assigned) == 1
