"""The first record of a topic leaves at once, on the mock broker of the Kafka library."""

from confluent_kafka import KafkaError, Producer

from streams.kafka.kafka_client import producer
from streams.kafka.kafka_config import KafkaConfig


def test_the_first_record_of_a_topic_does_not_wait_for_the_next_look_up_of_leaders() -> None:
    broker = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (first,) = broker.list_topics("queries", timeout=10).brokers.values()
    config = KafkaConfig(f"{first.host}:{first.port}")
    errors: list[KafkaError | None] = []
    # The record expires before the library's own look-up, which is due once a second.
    hasty = producer(config, **{"enable.idempotence": False, "delivery.timeout.ms": 300})
    hasty.list_topics("other", timeout=10)

    hasty.produce("queries", b"", on_delivery=lambda error, _: errors.append(error))
    hasty.flush(10)

    assert errors == [None]
