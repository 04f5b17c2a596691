"""Send queries to a topic, collect the answers from another, and measure latency and CPU time.

One thread sends and collects, so that the load generator takes little of the two cores that it
shares with the system under test. The message key identifies a query on both topics, unless the
caller passes ``query_of``.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import psutil
from confluent_kafka import Message, TopicPartition

from streams.kafka.kafka_client import consumer, producer
from streams.kafka.kafka_config import KafkaConfig

RECORD_BYTES = 500
_PER_TURN = 500  # queries sent between two polls for answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The offered load and its duration."""

    rate: float | None  # queries/s, evenly spaced; None: flat out
    seconds: float  # measured
    warm_seconds: float = 5.0  # flat out, first: class loading, first appends, JIT
    settle_seconds: float = 2.0  # at the offered rate, before the measurement
    outstanding: int = 4000  # flat out: queries in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """The result. Latency is from passing a query to the client to reading its answer."""

    sent: int  # in the measured time
    answered: int  # of those, up to ten seconds after it
    qps: float  # answers read in the measured time, per second of it
    p50_ms: float
    p99_ms: float
    cpu_ms_per_query: Mapping[str, float]  # by group of processes, and "load"


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The topics of queries and answers."""

    entry: str
    exit: str
    entry_lanes: int = 1  # partitions written, in turn
    exit_partitions: int = 1  # partitions read
    value: bytes = bytes(RECORD_BYTES)
    headers: Callable[[bytes], list[tuple[str, bytes]]] = field(default=lambda _: [])
    query_of: Callable[[Message], bytes | None] = field(default=lambda answer: answer.key())


def offer(
    config: KafkaConfig, path: Path, load: Load, watched: Mapping[str, Sequence[int]]
) -> Offered:
    """Warm up, settle, measure. `watched` names groups of processes whose CPU time is measured.

    Raises TimeoutError if the first query is not answered within 30 s, or none of those measured
    within 10 s after them.
    """
    client = _Client(config, path)
    try:
        client.first_answer(patience=30.0)
        client.flat_out(perf_counter() + load.warm_seconds, min(load.outstanding, 1000))
        client.drain(10.0)
        _run(client, load, load.settle_seconds)
        groups = {**watched, "load": [os.getpid()]}
        before, began = _cpu_seconds(groups), perf_counter()
        _run(client, load, load.seconds)
        after, ended = _cpu_seconds(groups), perf_counter()
        client.drain(10.0)
    finally:
        client.close()
    spent = {name: after[name] - before[name] for name in groups}
    return _figures(
        np.array(client.answers), len(client.unanswered(began, ended)), began, ended, spent
    )


def _run(client: "_Client", load: Load, seconds: float) -> None:
    until = perf_counter() + seconds
    if load.rate is None:
        client.flat_out(until, load.outstanding)
    else:
        client.paced(until, load.rate)


def _figures(
    answers: np.ndarray, unanswered: int, began: float, ended: float, spent: Mapping[str, float]
) -> Offered:
    sent_at, read_at = answers[:, 0], answers[:, 1]
    counted = answers[(sent_at >= began) & (sent_at < ended)]
    if not len(counted):
        raise TimeoutError(
            f"none of {unanswered} queries was answered up to ten seconds after the last; the "
            "machine is too busy to measure"
        )
    read = int(((read_at >= began) & (read_at < ended)).sum())
    p50, p99 = np.quantile(counted[:, 1] - counted[:, 0], [0.5, 0.99]) * 1e3
    return Offered(
        sent=len(counted) + unanswered,
        answered=len(counted),
        qps=read / (ended - began),
        p50_ms=float(p50),
        p99_ms=float(p99),
        cpu_ms_per_query={name: 1e3 * seconds / read for name, seconds in spent.items()},
    )


def _cpu_seconds(groups: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {name: sum(_cpu_of(pid) for pid in pids) for name, pids in groups.items()}


def _cpu_of(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


class _Client:
    def __init__(self, config: KafkaConfig, path: Path) -> None:
        self._path = path
        self._producer = producer(config)
        self._consumer = consumer(config, "benchmarks.load")
        everywhere = [TopicPartition(path.exit, part, 0) for part in range(path.exit_partitions)]
        self._consumer.assign(everywhere)
        self._count = 0
        self._open: dict[bytes, float] = {}
        self.answers: list[tuple[float, float]] = []  # sent at, read at

    def close(self) -> None:
        self._producer.purge()
        self._consumer.close()

    def first_answer(self, patience: float) -> None:
        give_up = perf_counter() + patience
        self._send()
        while self._open:
            if perf_counter() > give_up:
                raise TimeoutError(
                    f"no answer on {self._path.exit!r} {patience:.0f} s after a query went to "
                    f"{self._path.entry!r}; is what lies between them running?"
                )
            self._collect(0.1)

    def flat_out(self, until: float, outstanding: int) -> None:
        while perf_counter() < until:
            for _ in range(min(_PER_TURN, outstanding - len(self._open))):
                self._send()
            self._collect(0.05)

    def paced(self, until: float, rate: float) -> None:
        due = perf_counter()
        while (now := perf_counter()) < until:
            while due <= now:
                self._send()
                due += 1 / rate
            # The client counts whole milliseconds, and 0 would busy-wait on a shared core.
            self._collect(max(1, math.ceil((due - perf_counter()) * 1e3)) / 1e3)

    def drain(self, patience: float) -> None:
        give_up = perf_counter() + patience
        while self._open and perf_counter() < give_up:
            self._collect(0.1)

    def unanswered(self, began: float, ended: float) -> list[bytes]:
        return [query for query, sent in self._open.items() if began <= sent < ended]

    def _send(self) -> None:
        path, query = self._path, b"%016d" % self._count
        self._open[query] = perf_counter()
        lane = self._count % path.entry_lanes
        self._count += 1
        self._producer.produce(
            path.entry, path.value, query, partition=lane, headers=path.headers(query)
        )

    def _collect(self, timeout: float) -> None:
        self._producer.poll(0)
        first = self._consumer.poll(timeout)
        if first is None:
            return
        rest = self._consumer.consume(2 * _PER_TURN, 0)
        now = perf_counter()
        for answer in (first, *rest):
            query = None if answer.error() else self._path.query_of(answer)
            sent = None if query is None else self._open.pop(query, None)
            if sent is not None:  # a duplicate answer counts once
                self.answers.append((sent, now))
