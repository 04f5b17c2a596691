"""The sizes of the last queries, which an ingress reads at its start."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.roles.input_topic import recent_sizes as module
from headrace.roles.input_topic.recent_sizes import WAIT_S, recent_sizes
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from tests.builders import a_pipeline


def test_a_topic_that_cannot_be_read_does_not_keep_ingress_from_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits_s = []

    def unreadable(kafka: KafkaConfig, topic: str, stretch: int, wait_s: float) -> Iterator[Any]:
        waits_s.append(wait_s)
        yield []
        raise BrokerError(f"topic {topic!r} could not be read within {wait_s:g} s")

    monkeypatch.setattr(module, "newest_first", unreadable)
    assert recent_sizes(KafkaConfig("nobody:1"), a_pipeline(input="avro"), 10) == []
    assert waits_s == [WAIT_S]  # queries wait meanwhile
