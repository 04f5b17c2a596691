"""The control app in charge, by the partitions that its group assigns it."""

from confluent_kafka import TopicPartition

from schemas.effects import COMMANDS, PLANS
from streams.control_app.election import charged, elected
from streams.topics import physical


def assigned(*partitions: int) -> list[TopicPartition]:
    """Return these partitions of each control topic."""
    return [
        TopicPartition(physical("p", each), p) for each in (COMMANDS, PLANS) for p in partitions
    ]


def test_of_two_apps_that_share_added_partitions_one_is_in_charge() -> None:
    shares = (assigned(0), assigned(1, 2), assigned())
    assert [charged("p", elected(each)) for each in shares] == [True, False, False]
