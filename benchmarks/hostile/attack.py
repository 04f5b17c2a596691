"""One hostile producer, in a process of its own: it ends once its records are written.

python -m benchmarks.hostile.attack fuzz|flood|letters|ids FILE BOOTSTRAP COUNT RATE SEED
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hostile.hostile_records import HostileRecord, hostile_record, unknown_schema
from headrace.client.formats import writer_of
from headrace.config.pipeline_file import read_pipeline_file
from schemas.codec.raw import DEADLINE_HEADER
from schemas.effects import QUERIES
from schemas.pipeline import Pipeline
from schemas.records import Query
from streams.kafka.kafka_client import producer
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical

Make = Callable[[np.random.Generator], HostileRecord]
LETTER_BYTES = 1_000_000  # of an unreadable record
BURST_S = 0.02  # records of this time are written together


def _flood(pipeline: Pipeline) -> Make:
    """Valid queries in the pipeline's format."""
    write = writer_of(pipeline)

    def valid(rng: np.random.Generator) -> HostileRecord:
        value, headers = write(Query(payload=b"%d" % int(rng.integers(1000))))
        return value, list(headers)

    return valid


def _letter(rng: np.random.Generator) -> HostileRecord:
    return rng.bytes(LETTER_BYTES), [(DEADLINE_HEADER, b"soon")]


ATTACKS: Mapping[str, Callable[[Pipeline], Make]] = {
    "fuzz": lambda _: hostile_record,
    "flood": _flood,
    "letters": lambda _: _letter,
    "ids": lambda _: unknown_schema,  # each makes ingress ask the schema registry
}


def attack(
    kind: str, pipeline: Pipeline, bootstrap: str, count: int, rate: float, seed: int
) -> None:
    """Write ``count`` records, ``rate`` a second, as far as the broker takes them."""
    rng, make = np.random.default_rng(seed), ATTACKS[kind](pipeline)
    topic = physical(pipeline.name, QUERIES)
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
    kind, file, bootstrap, count, rate, seed = arguments
    pipeline = read_pipeline_file(Path(file)).pipeline
    attack(kind, pipeline, bootstrap, int(count), float(rate), int(seed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
