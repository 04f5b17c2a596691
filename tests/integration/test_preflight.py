"""A role checks its topics before it starts."""

import uuid
from dataclasses import replace

import pytest
from confluent_kafka.admin import NewTopic

from schemas.effects import OUTPUTS, QUERIES
from streams.kafka.admin.preflight import prepare
from streams.kafka.admin.topic_admin import partitions_of
from streams.kafka.kafka_client import admin
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import MOST_BYTES, physical
from tests.builders import a_pipeline

pytestmark = pytest.mark.kafka


def test_a_role_does_not_start_if_a_topic_accepts_smaller_records_than_it_may_write(
    broker: str,
) -> None:
    kafka, pipeline = KafkaConfig(broker), a_pipeline(name=f"small-{uuid.uuid4().hex[:8]}")
    outputs = physical(pipeline.name, OUTPUTS)
    made = NewTopic(outputs, pipeline.egress_partitions, config={MOST_BYTES: "1048588"})
    client = admin(kafka)
    client.create_topics([made])[outputs].result(20)
    for role in ("ingress", "worker"):
        with pytest.raises(BrokerError) as raised:
            prepare(kafka, pipeline, role)
        assert str(raised.value) == (
            f"topic '{outputs}' takes records of up to 1048588 bytes, and this role may write some "
            f"of 8388608; run `kafka-configs --alter --topic {outputs} --add-config "
            "max.message.bytes=8388608`"
        )
    prepare(kafka, pipeline, "egress", "control")  # roles that only read the topic


def test_the_input_topic_has_the_files_partitions_and_an_existing_one_keeps_its_own(
    broker: str,
) -> None:
    kafka, pipeline = KafkaConfig(broker), a_pipeline(name=f"input-{uuid.uuid4().hex[:8]}")
    queries = physical(pipeline.name, QUERIES)
    prepare(kafka, replace(pipeline, input_partitions=6), "ingress")
    assert partitions_of(kafka, queries) == 6
    prepare(kafka, replace(pipeline, input_partitions=2), "ingress")
    assert partitions_of(kafka, queries) == 6
    with pytest.raises(BrokerError) as raised:
        prepare(kafka, replace(pipeline, input_partitions=8), "ingress")
    assert str(raised.value) == (
        f"topic '{queries}' has 6 partitions, 8 are needed; run `kafka-topics --alter --topic "
        f"{queries} --partitions 8`, or lower `input_partitions` in the pipeline file"
    )
    assert partitions_of(kafka, queries) == 6
