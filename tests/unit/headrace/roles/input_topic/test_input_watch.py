"""Changes of the input topic between checks."""

import queue
import threading

import pytest

from headrace.errors import InputRecreated, PartitionsChanged
from headrace.roles.input_topic.input_watch import (
    Absence,
    agreed_change,
    topic_change,
    watched_input,
)
from streams.kafka.admin.topic_admin import UNKNOWN_TOPIC, TopicLook
from streams.kafka.kafka_config import KafkaConfig, KafkaConfigError
from streams.kafka.kafka_errors import BrokerError

SEEN = TopicLook("id-1", 3)


@pytest.mark.parametrize("now", [SEEN, None, TopicLook("", 3), UNKNOWN_TOPIC])
def test_nothing_has_changed(now: TopicLook | None) -> None:
    assert topic_change("shop.queries", SEEN, now) is None


def test_a_broker_without_ids_tells_partitions_only() -> None:
    assert topic_change("shop.queries", TopicLook("", 3), TopicLook("id-1", 3)) is None
    assert isinstance(
        topic_change("shop.queries", TopicLook("", 3), TopicLook("", 4)), PartitionsChanged
    )


def test_another_topic_of_the_name_is_reported_first() -> None:
    assert isinstance(topic_change("shop.queries", SEEN, TopicLook("id-2", 1)), InputRecreated)


def test_added_partitions_are_reported_with_their_number() -> None:
    error = topic_change("shop.queries", SEEN, TopicLook("id-1", 5))
    assert isinstance(error, PartitionsChanged)
    assert "has 5 partitions and had 3" in str(error)


ANEW = TopicLook("id-2", 3)


@pytest.mark.parametrize(
    ("looks", "found"),
    [
        ((SEEN, SEEN, ANEW), type(None)),
        ((SEEN, ANEW), InputRecreated),  # a broker with outdated metadata
        ((None, ANEW), InputRecreated),
        ((None, SEEN, None, SEEN), type(None)),
        ((None, None), BrokerError),
        ((UNKNOWN_TOPIC, SEEN, UNKNOWN_TOPIC), BrokerError),
        ((SEEN,), BrokerError),
    ],
)
def test_a_topic_is_the_same_where_two_looks_agree(
    looks: tuple[TopicLook | None, ...], found: type
) -> None:
    assert type(agreed_change("shop.queries", SEEN, looks)) is found


def test_a_topic_is_gone_if_no_broker_knows_it_for_a_while_and_again_after_that() -> None:
    absence = Absence(10.0)
    assert [s for s in range(35) if absence.lasts(UNKNOWN_TOPIC, float(s))] == [10, 20, 30]
    assert not absence.lasts(None, 41.0)
    assert absence.lasts(UNKNOWN_TOPIC, 42.0)
    absence.lasts(SEEN, 50.0)
    assert not absence.lasts(UNKNOWN_TOPIC, 55.0)
    assert not absence.lasts(UNKNOWN_TOPIC, 64.0)


def test_a_watch_that_cannot_look_any_more_ends_its_role() -> None:
    """Otherwise a recreated topic would go unnoticed."""
    odd = KafkaConfig("127.0.0.1:1", {"no.such.property": "1"})
    failed = queue.SimpleQueue[BaseException]()
    with watched_input(odd, "shop.queries", SEEN, failed.put, every_s=0.01):
        assert isinstance(failed.get(timeout=5.0), KafkaConfigError)


def test_no_watch_outlives_its_block() -> None:
    """A reply of its client would crash a process that is ending."""
    nobody = KafkaConfig("127.0.0.1:1")
    with watched_input(nobody, "shop.queries", SEEN, lambda _: None, 0.0, within_s=0.2):
        assert "input-watch" in [each.name for each in threading.enumerate()]
    assert "input-watch" not in [each.name for each in threading.enumerate()]
