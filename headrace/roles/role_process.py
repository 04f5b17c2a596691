"""Common parts of every role's process: its driver on Kafka, its clock, its end by a signal."""

import contextlib
import math
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from headrace.client.topic_clients import Tail
from headrace.processes import run_directory
from headrace.roles.heap import tune_heap
from headrace.roles.namesakes import LISTEN_S, Namesakes
from headrace.roles.observability.log_options import LogOptions
from headrace.roles.observability.observability import observed
from headrace.roles.process_setup import (
    dilation,
    node_clock,
    process_clock,
    write_within_limit,
)
from schemas.effects import REPORTS, Node
from schemas.pipeline import Pipeline
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.transport import KafkaTransport
from streams.live.crash_journal import CrashJournal
from streams.live.fatal_records import FatalRecords
from streams.live.live_driver import Live
from streams.live.load_journal import LoadJournal
from streams.live.slot_readers import InputLog
from streams.observers.watchers import Watchers
from streams.topics import own_topics, physical

FENCE_S = 5.0  # an ingress or egress that stalled for longer may have been replaced


def namesakes_of(kafka: KafkaConfig, pipeline: Pipeline, names: Sequence[str]) -> Namesakes:
    """Return the watch for other living nodes of these names."""
    reports = partial(Tail, kafka, physical(pipeline.name, REPORTS))
    return Namesakes(reports, pipeline.name, names, dilation().factor, process_now)


@contextlib.contextmanager
def driver(
    pipeline: Pipeline,
    nodes: Mapping[str, Node],
    transport: KafkaTransport,
    logs: LogOptions,
    *,
    role: str = "",
    fence_s: float | None = None,
    namesakes: Namesakes | None = None,
    input_log: InputLog | None = None,
) -> Iterator[Live]:
    """Yield the driver of a process' nodes, to run; close it at the end.

    ``fence_s``: a process that stood still for longer may have been replaced, so it ends.
    """
    how = dilation()
    transport.warm(own_topics(pipeline))
    if namesakes is not None:
        transport.notice_silence(LISTEN_S * how.factor, namesakes.look_again)
    named = role or ", ".join(nodes)
    reads_queries = input_log is not None
    with observed(named, pipeline, logs, transport, reads_queries=reads_queries) as observers:
        yield Live(
            pipeline,
            nodes,
            how.transport(transport),
            clock=how.clock(process_clock),
            inbox=how.inbox(),
            observers=(Watchers(observers),),
            fence_s=fence_s,
            fatal=FatalRecords(run_directory(pipeline.name) / f"{named}.fatal-records.json"),
            write_as=write_within_limit(),
            input_log=input_log,
        )


def process_now() -> float:
    """Return the seconds of the process' clock, as its nodes see them."""
    return node_clock()()


def run_until_signal(live: Live, end: Callable[[], None]) -> None:
    """Run until SIGTERM, which ends the role gracefully, or SIGINT, which ends it at once."""
    signal.signal(signal.SIGTERM, lambda *_: end())
    signal.signal(signal.SIGINT, lambda *_: live.stop())
    tune_heap()
    live.run()


def crash_journal(pipeline: Pipeline, name: str, longest_s: float = math.inf) -> CrashJournal:
    """Return the journal of what ran when an earlier process of this name died, or for longer than
    ``longest_s``, after which it ended."""
    path = run_directory(pipeline.name) / f"{name}.running.json"
    return CrashJournal(path, longest_s, node_clock())


def load_journal(pipeline: Pipeline, name: str) -> LoadJournal:
    """Return the journal of what a worker was loading when an earlier process of it died."""
    return LoadJournal(run_directory(pipeline.name) / f"{name}.loading.json", node_clock())
