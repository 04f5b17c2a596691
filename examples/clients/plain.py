"""Ask the words pipeline with plain confluent-kafka: nothing of Headrace is needed.

headrace up examples/words/pipeline.yaml
python examples/clients/plain.py localhost:9092 "hello world"
"""

import json
import sys
import time
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition


def results_from_now(broker):
    """A consumer of every partition of the results topic, from its end on, without a group."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": "unused",  # must be named, though partitions are assigned by hand
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    partitions = consumer.list_topics("words.results", timeout=10).topics["words.results"]
    places = [TopicPartition("words.results", number) for number in partitions.partitions]
    for place in places:
        # As a number: what is written before OFFSET_END is resolved would be missed.
        place.offset = consumer.get_watermark_offsets(place, timeout=10)[1]
    consumer.assign(places)
    return consumer


def main(broker, text):
    consumer = results_from_now(broker)
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 0})
    query = uuid.uuid4().hex
    due_ms = (time.time() + 5) * 1e3
    headers = {"headrace-id": query, "headrace-deadline-ms": f"{due_ms:.0f}"}
    producer.produce("words.queries", text.encode(), headers=headers)
    producer.flush()
    while time.time() * 1e3 < due_ms + 5_000:
        record = consumer.poll(0.1)
        if record is None or record.error() or record.key() != query.encode():
            continue
        answer = json.loads(record.value())
        print(answer["outcome"], answer["result"])
        break
    else:
        sys.exit(f"no answer to {query}; is the pipeline up?")
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
