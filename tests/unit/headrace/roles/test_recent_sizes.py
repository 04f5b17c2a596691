"""The sizes of the last queries, which a dispatcher would like to have at its start."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.roles.input_topic import recent_sizes as module
from headrace.roles.input_topic.recent_sizes import recent_sizes
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from tests.builders import a_pipeline


def test_a_topic_that_cannot_be_read_does_not_keep_ingress_from_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(*_: Any) -> Iterator[list[Any]]:
        yield []
        raise BrokerError("topic 'p.queries' could not be read within 30 s")

    monkeypatch.setattr(module, "newest_first", unreadable)
    assert recent_sizes(KafkaConfig("nobody:1"), a_pipeline(input="avro"), 10) == []
