"""What became of the input topic between two looks at it."""

import pytest

from headrace.errors import InputMadeAnew, PartitionsChanged
from headrace.roles.input_topic.input_watch import changed
from streams.kafka.topic_admin import TopicLook

SEEN = TopicLook("id-1", 3)


@pytest.mark.parametrize("now", [SEEN, None, TopicLook("", 3)])
def test_nothing_has_changed(now: TopicLook | None) -> None:
    assert changed("shop.queries", SEEN, now) is None


def test_a_broker_without_ids_tells_partitions_only() -> None:
    assert changed("shop.queries", TopicLook("", 3), TopicLook("id-1", 3)) is None
    assert isinstance(
        changed("shop.queries", TopicLook("", 3), TopicLook("", 4)), PartitionsChanged
    )


def test_another_topic_of_the_name_is_told_first() -> None:
    assert isinstance(changed("shop.queries", SEEN, TopicLook("id-2", 1)), InputMadeAnew)


def test_added_partitions_are_told_with_their_number() -> None:
    error = changed("shop.queries", SEEN, TopicLook("id-1", 5))
    assert isinstance(error, PartitionsChanged)
    assert "has 5 partitions and had 3" in str(error)
