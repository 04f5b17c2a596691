"""Measure a bare relay, the lower bound of a pipeline of two stages: five topics, four processes.

    queries -> work.a -> work.b -> outputs -> results

Each relay polls one record, drains further available records, produces all of them and polls its
callbacks once, with Headrace's client settings. Run it with

    python -m benchmarks.relay [--json] [--rates 50 200 flat] [--lanes 1] [--bootstrap HOST:PORT]
"""

import argparse
import json
import multiprocessing
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path as FilePath

from confluent_kafka import TopicPartition

from benchmarks.load import Load, Path, offer
from benchmarks.machine_speed import machine
from headrace.broker.local_broker import borrow
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import admin, consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import Topic

STEPS = ("queries", "work.a", "work.b", "outputs", "results")
PARTITIONS = 16
_PER_DRAIN = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayFigures:
    """Figures of the bare relay at one rate."""

    rate: float | None  # queries/s offered; None: flat out
    seconds: float
    lanes: int  # partitions in use on each topic
    sent: int
    answered: int
    qps: float
    p50_ms: float
    p99_ms: float
    cpu_ms_per_query: float  # the four relays together
    load_cpu_ms_per_query: float
    broker_cpu_ms_per_query: float | None  # None: the broker's process is unknown


def measure_relay(
    bootstrap: str,
    rate: float | None,
    seconds: float,
    *,
    lanes: int = 1,
    broker_pid: int | None = None,
    warm_seconds: float = 5.0,
) -> RelayFigures:
    """Run the relay between new topics of 16 partitions and offer it `rate` queries/s.

    `lanes` is the number of partitions in use: one for each worker of a stage, like Headrace's
    slots. Raises TimeoutError if no query is answered.
    """
    config = KafkaConfig(bootstrap)
    load = Load(rate=rate, seconds=seconds, warm_seconds=warm_seconds)
    with _topics(config) as topics, _relays(bootstrap, topics, lanes) as relays:
        path = Path(entry=topics[0], exit=topics[-1], entry_lanes=lanes, exit_partitions=PARTITIONS)
        broker = {} if broker_pid is None else {"broker": [broker_pid]}
        seen = offer(config, path, load, {"relays": relays, **broker})
    cpu = seen.cpu_ms_per_query
    return RelayFigures(
        rate=rate,
        seconds=seconds,
        lanes=lanes,
        sent=seen.sent,
        answered=seen.answered,
        qps=seen.qps,
        p50_ms=seen.p50_ms,
        p99_ms=seen.p99_ms,
        cpu_ms_per_query=cpu["relays"],
        load_cpu_ms_per_query=cpu["load"],
        broker_cpu_ms_per_query=cpu.get("broker"),
    )


def pass_on(bootstrap: str, source: str, target: str, lanes: int) -> None:
    """Run one relay endlessly: copy each record to the same partition of the next topic."""
    config = KafkaConfig(bootstrap)
    reader, writer = consumer(config, "benchmarks.relay"), producer(config)
    reader.assign([TopicPartition(source, lane, 0) for lane in range(lanes)])
    while True:
        first = reader.poll(1.0)
        if first is not None:
            for record in (first, *reader.consume(_PER_DRAIN, 0)):
                if record.error() is None:
                    writer.produce(
                        target, record.value(), record.key(), partition=record.partition()
                    )
        writer.poll(0)


@contextmanager
def _topics(config: KafkaConfig) -> Iterator[list[str]]:
    run = uuid.uuid4().hex[:8]
    names = [f"relay-{run}.{step}" for step in STEPS]
    ensure_topics(config, [Topic(name=name, partitions=PARTITIONS) for name in names])
    try:
        yield names
    finally:
        client = admin(config)  # kept in scope: its futures end with it
        for done in client.delete_topics(names).values():
            done.result(30)


@contextmanager
def _relays(bootstrap: str, topics: Sequence[str], lanes: int) -> Iterator[list[int]]:
    spawning = multiprocessing.get_context("spawn")
    relays = [
        spawning.Process(target=pass_on, args=(bootstrap, source, target, lanes), daemon=True)
        for source, target in pairwise(topics)
    ]
    for relay in relays:
        relay.start()
    try:
        yield [relay.pid for relay in relays if relay.pid is not None]
    finally:
        for relay in relays:
            relay.kill()
            relay.join()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The bare five-topic relay.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rates", nargs="+", default=["50", "200", "flat"], metavar="QPS|flat")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--lanes", type=int, default=1, help="partitions in use on each topic")
    parser.add_argument("--bootstrap", help="a broker of yours; without it one is started")
    asked = parser.parse_args(arguments)
    with ExitStack() as stack:
        bootstrap, pid = asked.bootstrap, None
        if bootstrap is None:
            home = FilePath(stack.enter_context(tempfile.TemporaryDirectory()))
            running = stack.enter_context(borrow(home))
            bootstrap, pid = running.bootstrap, running.pid
        found = []
        for text in asked.rates:
            rate = None if text == "flat" else float(text)
            found.append(
                measure_relay(bootstrap, rate, asked.seconds, lanes=asked.lanes, broker_pid=pid)
            )
            if not asked.json:
                print(_line(found[-1]))
    if asked.json:
        print(json.dumps({"machine": machine(), "relay": [asdict(each) for each in found]}))


def _line(each: RelayFigures) -> str:
    offered = "flat out" if each.rate is None else f"{each.rate:g}/s"
    broker = each.broker_cpu_ms_per_query
    return (
        f"{offered:>10}  {each.qps:8.0f} q/s  p50 {each.p50_ms:6.1f} ms  p99 {each.p99_ms:6.1f} ms"
        f"  CPU per query: relays {each.cpu_ms_per_query:.3f} ms, load "
        f"{each.load_cpu_ms_per_query:.3f} ms"
        + ("" if broker is None else f", broker {broker:.3f} ms")
        + f"  lost {each.sent - each.answered}"
    )


if __name__ == "__main__":
    main()
