"""The control app in charge, by the partitions that its group assigns it."""

import os
from collections.abc import Mapping

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.structs import PartitionMetadata
from confluent_kafka import TopicPartition
from faust.assignor.client_assignment import ClientAssignment, ClientMetadata

from schemas.effects import COMMANDS, PLANS
from streams.control_app.app import FirstPartitions, Tableless
from streams.control_app.election import CHARGED, TopicGone, charged, elected
from streams.topics import physical


def assigned(*partitions: int) -> list[TopicPartition]:
    """Return these partitions of each control topic."""
    return [
        TopicPartition(physical("p", each), p) for each in (COMMANDS, PLANS) for p in partitions
    ]


def test_of_two_apps_that_share_added_partitions_one_is_in_charge() -> None:
    shares = (assigned(0), assigned(1, 2), assigned())
    assert [charged("p", elected(each)) for each in shares] == [True, False, False]


def a_cluster(counts: Mapping[str, int]) -> ClusterMetadata:
    """Return a cluster that has the topics with these numbers of partitions."""
    cluster = ClusterMetadata()
    cluster._partitions = {
        topic: {p: PartitionMetadata(topic, p, 0, [0], [0], None) for p in range(count)}
        for topic, count in counts.items()
    }
    return cluster


def a_member(had: Mapping[str, list[int]]) -> ConsumerProtocolMemberMetadata:
    """Return a member of the group with the partitions that it had before."""
    was = ClientAssignment(actives={**had}, standbys={})
    known = ClientMetadata(assignment=was, url="http://host:6066", changelog_distribution={})
    topics = [physical("p", each) for each in CHARGED]
    return ConsumerProtocolMemberMetadata(2, topics, known.dumps())


def assignments(
    counts: Mapping[str, int], members: Mapping[str, Mapping[str, list[int]]]
) -> dict[str, list[TopicPartition]]:
    """Return what the group's leader assigns to each member."""
    assignor = FirstPartitions(Tableless("p.control", datadir=os.devnull, web_enabled=False))
    shares = assignor.assign(a_cluster(counts), {m: a_member(had) for m, had in members.items()})
    return {
        member: [TopicPartition(topic, p) for topic, numbers in share.assignment for p in numbers]
        for member, share in shares.items()
    }


TOPICS = tuple(physical("p", each) for each in CHARGED)
SHARED_OUT = {"a": {TOPICS[0]: [1], TOPICS[1]: [0]}, "b": {TOPICS[0]: [2]}, "c": {TOPICS[0]: [0]}}


@pytest.mark.parametrize("counts", [(1, 1), (3, 3), (3, 1), (1, 3), (2, 5)])
@pytest.mark.parametrize("members", [{"a": {}}, {"a": {}, "b": {}}, SHARED_OUT])
def test_one_app_is_in_charge_whatever_the_numbers_of_partitions(
    counts: tuple[int, int], members: Mapping[str, Mapping[str, list[int]]]
) -> None:
    shares = assignments(dict(zip(TOPICS, counts, strict=True)), members)
    # ``charged`` raises TopicGone for a member with one of the topics
    assert sum(charged("p", elected(share)) for share in shares.values()) == 1
    assert sum(map(len, shares.values())) == len(TOPICS)


def test_the_app_in_charge_stays_in_charge_when_another_one_joins() -> None:
    counts = dict.fromkeys(TOPICS, 3)
    leads = {topic: [0] for topic in TOPICS}
    for members in ({"a": leads, "b": {}}, {"a": {}, "b": leads}):
        shares = assignments(counts, members)
        (first,) = [name for name, had in members.items() if had]
        assert [name for name, share in shares.items() if share] == [first]


def test_a_topic_that_the_broker_does_not_have_is_named() -> None:
    shares = assignments({TOPICS[0]: 1}, {"a": {}})
    with pytest.raises(TopicGone, match=f"the broker has lost {TOPICS[1]}"):
        charged("p", elected(shares["a"]))
    assert assignments({}, {"a": {}}) == {"a": []}
