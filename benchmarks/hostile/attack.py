"""One hostile producer, in a process of its own: it writes until its records are out.

python -m benchmarks.hostile.attack fuzz|flood|flood-avro|letters BOOTSTRAP TOPIC COUNT RATE SEED
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.hostile.hostile_records import HostileRecord, hostile_record
from schemas.codec.raw import DEADLINE_HEADER
from schemas.codec.single_object import encode
from schemas.records import Query
from streams.kafka.kafka_client import producer
from streams.kafka.kafka_config import KafkaConfig

LETTER_BYTES = 1_000_000  # of an unreadable record
BURST_S = 0.02  # records of this time are written together


def _valid(rng: np.random.Generator) -> HostileRecord:
    return b"%d" % int(rng.integers(1000)), []


def _valid_avro(rng: np.random.Generator) -> HostileRecord:
    return encode(Query(payload=b"%d" % int(rng.integers(1000)))), []


def _letter(rng: np.random.Generator) -> HostileRecord:
    return rng.bytes(LETTER_BYTES), [(DEADLINE_HEADER, b"soon")]


ATTACKS: Mapping[str, Callable[[np.random.Generator], HostileRecord]] = {
    "fuzz": hostile_record,
    "flood": _valid,
    "flood-avro": _valid_avro,
    "letters": _letter,
}


def attack(kind: str, bootstrap: str, topic: str, count: int, rate: float, seed: int) -> None:
    """Write ``count`` records, ``rate`` a second, as far as the broker takes them."""
    rng, make = np.random.default_rng(seed), ATTACKS[kind]
    more: dict[str, Any] = {"queue.buffering.max.kbytes": 256_000, "linger.ms": 5}
    client = producer(KafkaConfig(bootstrap), **more)
    began_s = time.monotonic()
    for number in range(count):
        value, headers = make(rng)
        while True:
            try:
                client.produce(topic, value, headers=headers)
                break
            except BufferError:
                client.poll(0.05)
        due_s = began_s + number / rate - time.monotonic()
        if due_s > BURST_S:
            time.sleep(due_s)
        client.poll(0)
    client.flush(60)


def main(arguments: Sequence[str]) -> int:
    """Attack as the arguments say."""
    kind, bootstrap, topic, count, rate, seed = arguments
    attack(kind, bootstrap, topic, int(count), float(rate), int(seed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
