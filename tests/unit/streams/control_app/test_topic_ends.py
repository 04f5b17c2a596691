"""A stalled consumer and a missing ingress are detected from the end offsets of topics."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, TopicPartition

from control.estimation.demand import Demand
from control.estimation.estimators import jumped
from schemas.effects import Counted
from streams.control_app import topic_ends
from streams.control_app.topic_ends import (
    LOOK_S,
    REMIND_S,
    STALLED_S,
    UNREAD_S,
    AddedPartitions,
    InputTopic,
    ReportDelivery,
    UnreadPartitions,
    unread_text,
)
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from tests.control_world import a_pipeline


class Broker:
    """The client's answers about an input topic with 100 queries in each partition."""

    def __init__(self, partitions: int) -> None:
        self.partitions, self.looks = partitions, 0

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        self.looks += 1
        found = dict.fromkeys(range(self.partitions))
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=found)})

    def offsets_for_times(
        self, asked: Sequence[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition, 100) for each in asked]


def test_queries_in_partitions_that_are_added_to_the_input_topic_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Demand lacked them until the control app restarted."""
    broker, now = Broker(2), [0.0]
    monkeypatch.setattr(topic_ends, "consumer", lambda *_, **__: broker)
    inputs = InputTopic(KafkaConfig("127.0.0.1:1"), a_pipeline(), lambda: now[0])
    assert inputs.ends() == {0: 100, 1: 100}
    broker.partitions = 4
    for _ in range(20):
        inputs.ends()
    assert broker.looks == 1
    now[0] += LOOK_S
    assert inputs.ends() == dict.fromkeys(range(4), 100)
    assert broker.looks == 2


class Forbidding:
    """A client of a user who may not see the offsets of command results."""

    def offsets_for_times(
        self, asked: Sequence[TopicPartition], timeout: float
    ) -> list[SimpleNamespace]:
        forbidden = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        hidden = "headrace.command-results"
        return [
            SimpleNamespace(topic=p.topic, error=forbidden if p.topic == hidden else None)
            for p in asked
        ]


def test_a_right_to_offsets_that_the_user_has_lost_is_named_with_its_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_ends, "consumer", lambda *_, **__: Forbidding())
    kafka = KafkaConfig("127.0.0.1:1", {"sasl.username": "ann"})
    inputs = InputTopic(kafka, a_pipeline(), lambda: 0.0)
    with pytest.raises(BrokerError) as told:
        inputs.shared_ends()
    assert "headrace.command-results: " in str(told.value)
    assert "; user 'ann' lacks a right that `headrace acls FILE` prints" in str(told.value)


def test_reports_that_are_written_and_not_delivered_mean_a_stalled_consumer() -> None:
    delivery = ReportDelivery()
    assert not delivery.stalled(100, 0.0)
    assert not delivery.stalled(105, 1.0)
    assert not delivery.stalled(150, STALLED_S)
    assert delivery.stalled(151, STALLED_S + 0.1)


def test_consumer_that_receives_reports_has_not_stalled() -> None:
    delivery = ReportDelivery()
    for second in range(60):
        delivery.delivered()
        assert not delivery.stalled(100 + second, float(second))


def test_topic_without_new_reports_means_no_stalled_consumer() -> None:
    delivery = ReportDelivery()
    assert not any(delivery.stalled(100, float(second)) for second in range(60))
    assert not delivery.stalled(101, 60.0)
    assert not delivery.stalled(140, 65.0)


def test_a_partition_that_nobody_reads_is_reported_with_reminders() -> None:
    unread = UnreadPartitions()
    ends, done = {0: 50, 1: 7}, {0: 40}
    assert unread.look(ends, done, 0.0) == {}
    assert unread.look({0: 90, 1: 9}, {0: 80}, UNREAD_S) == {}
    assert unread.look({0: 99, 1: 9}, {0: 95}, UNREAD_S + 0.1) == {1: 9}
    assert unread.look({0: 99, 1: 12}, {0: 99}, UNREAD_S + 5) == {}
    assert unread.look({0: 99, 1: 15}, {0: 99}, UNREAD_S + 0.1 + REMIND_S) == {}
    assert unread.look({0: 99, 1: 15}, {0: 99}, UNREAD_S + 0.2 + REMIND_S) == {1: 15}


def test_a_partition_whose_ingress_is_throttled_is_reported_once() -> None:
    """Each commit between two delays by a quota made it a new case, with a line every 15 s."""
    unread = UnreadPartitions()
    found = [
        unread.look({0: 1000 + second}, {0: second // 15}, float(second))
        for second in range(round(REMIND_S))
    ]
    assert [row for row in found if row] == [{0: 1011}]


def test_a_time_without_offsets_restarts_the_search_and_brings_no_reminder() -> None:
    """A throttled control app gets no offsets now and then: each time brought a new line."""
    unread = UnreadPartitions()
    assert unread.look({0: 9}, {}, 0.0) == {}
    assert unread.look({0: 9}, {}, UNREAD_S + 1) == {0: 9}
    unread.blind()
    assert unread.look({0: 9}, {}, REMIND_S + UNREAD_S + 2) == {}
    assert unread.look({0: 9}, {}, REMIND_S + 2 * UNREAD_S + 3) == {0: 9}


def test_an_ingress_that_waits_is_not_said_to_be_missing() -> None:
    """While copies of its topics were missing, the line had "no ingress reads partition 1"."""
    assert unread_text({3: 2, 1: 9}) == (
        "no ingress has finished a query of partition 1, 3 of the input topic for 10 s, where 11 "
        "queries wait; start the missing ingress (`headrace up`, or its --share), or see in its "
        "log what it waits for"
    )


def test_a_partition_without_queries_needs_no_reader() -> None:
    unread = UnreadPartitions()
    for second in range(60):
        assert unread.look({0: 5, 1: 0}, {0: 5}, float(second)) == {}
    assert unread.look({0: 6, 1: 0}, {0: 5}, 60.0) == {}  # it has just arrived


@pytest.mark.parametrize("qps", [100.0, 1000.0])
def test_partitions_that_are_added_to_the_input_topic_show_no_jump_of_demand(qps: float) -> None:
    """A fifth of the queries goes to a fifth partition for a second before it is found. Counted at
    once they were a demand of 2.8 times as much."""
    added, demand = AddedPartitions(), Demand()
    for tick in range(300):
        now, later_s = 100.0 + tick / 10, max(0.0, tick / 10 - 20.0)
        ends = {0: round(qps * (tick / 10 - 0.2 * later_s))}
        if later_s >= 1.0:
            ends[1] = round(qps * 0.2 * later_s)
        arrived = sum(ends.values()) - added.held(ends)
        demand.count(Counted(arrived=arrived, waiting=0, at_s=now))
        assert not jumped(demand, now, qps)
