"""The trace context of a query's record is in its result record and its log lines, whatever the
query's outcome."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.outcomes import outcome_of
from schemas.codec.single_object import encode
from schemas.effects import OUTPUTS, PLANS, QUERIES, RESULTS
from schemas.pipeline import Pipeline
from schemas.records import Noticed, Settings
from schemas.trace_context import Headers, headers_of, trace_of
from streams.codecs.wire import Fetched, decoder
from streams.live.live_driver import Live
from streams.observers.journal import Journal
from streams.topics import physical
from tests.builders import a_lease, a_plan
from tests.memory_transport import Fed, JumpingInbox, MemoryTransport, VirtualClock
from tests.small_world import HOP_S, SLO_S, small_hands, small_nodes, small_pipeline

PIPELINE = small_pipeline(input="raw", slo_classes={"expired": HOP_S / 2, "short": 0.02})
LEASES = a_lease("w0", "locate"), a_lease("w1", slots=(0, 2)), a_lease("w2", slots=(1,))
PLAN = a_plan(LEASES, settings=Settings(policy="static", slo_s=SLO_S))
UNTIL_S = 0.9
# What a query's value and class lead to.
ENDS: dict[str, tuple[bytes, str]] = {
    "answered": (b"scan", ""),
    "missed": (b"scan", "short"),
    "expired": (b"scan", "expired"),
    "refused": (b"scan", "unknown"),
    "unreadable": (b"", ""),
}
PARENTS = [b"00-%032x-%016x-0%d" % (n, n, n % 2) for n in range(1, 4)]

contexts = st.lists(
    st.tuples(st.just("traceparent"), st.sampled_from([*PARENTS, b"00-malformed", b"\xff"]))
    | st.tuples(st.just("tracestate"), st.sampled_from([b"vendor=1", b"\xff", b"k=v," * 300])),
    max_size=2,
)
queries = st.lists(
    st.tuples(st.sampled_from(list(ENDS)), contexts, st.integers(0, 3), st.floats(0.3, 0.5)),
    min_size=1, max_size=8,
)  # fmt: skip
Asked = Sequence[tuple[str, Headers, int, float]]


class Lines(logging.Handler):
    """A handler that keeps the fields of logged lines."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: list[dict[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.fields.append(record.__dict__["fields"])


@contextmanager
def logged() -> Iterator[Lines]:
    """Keep every line of the nodes' log."""
    lines, log = Lines(), logging.getLogger("headrace.node")
    level = log.level
    log.addHandler(lines)
    log.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        log.removeHandler(lines)
        log.setLevel(level)


def served(asked: Asked, pipeline: Pipeline = PIPELINE) -> MemoryTransport:
    """Run queries through every node under the live driver; return the broker's records."""
    clock = VirtualClock()
    transport = MemoryTransport(pipeline, clock, HOP_S)
    inbox, nodes = JumpingInbox(clock, transport), small_nodes(pipeline)
    live = Live(
        pipeline, nodes, transport, clock=clock, inbox=inbox, observers=[Journal(pipeline.name)]
    )
    for name in ("w0", "w1", "w2"):
        live.attach(name, small_hands(live, name, 0, clock))
    plan = (0.0, physical("", PLANS), encode(PLAN), 0, ())
    inbox.feed(live, [plan, *sorted(map(fed_query, range(len(asked)), asked))])
    live.start()
    while clock() < UNTIL_S:
        live.turn()
    return transport


def fed_query(number: int, asked: tuple[str, Headers, int, float]) -> Fed:
    end, context, slot, at_s = asked
    value, slo_class = ENDS[end]
    named = [("headrace-id", b"q%d" % number), ("headrace-slo-class", slo_class.encode())]
    return at_s, physical("p", QUERIES), value, slot, [*named, *context]


@pytest.mark.thorough
@given(queries)
def test_every_result_and_every_line_of_a_query_has_its_trace(asked: Asked) -> None:
    with logged() as lines:
        results = served(asked).log(physical("p", RESULTS))
    traces = {f"q{number}": trace_of(context) for number, (_, context, *_) in enumerate(asked)}
    assert {of(each): each.headers or [] for each in results} == {
        name: list(headers_of(trace)) for name, trace in traces.items()
    }
    assert len(results) == len(asked)
    of_queries = [fields for fields in lines.fields if "query" in fields]
    assert {fields["query"] for fields in of_queries} == traces.keys()
    for fields in of_queries:
        trace = traces[fields["query"]]
        assert fields.get("trace_id") == (trace.id if trace else None)


def of(result: Fetched) -> str:
    return (result.key or b"").decode()


def test_queries_end_in_every_way_here_and_one_without_work_has_its_trace_by_its_notice() -> None:
    context = [("traceparent", PARENTS[0])]
    transport = served([(end, context, 0, 0.3 + at / 10) for at, end in enumerate(ENDS)])
    results = transport.log(physical("p", RESULTS))
    assert [each.headers for each in results] == [context] * len(ENDS)
    outcomes = [outcome_of(decoder(PIPELINE, RESULTS)(each)) for each in results]
    assert sorted(outcomes) == ["answered", "dropped", "dropped", "refused", "refused"]
    notices = [decoder(PIPELINE, OUTPUTS)(each) for each in transport.log(physical("p", OUTPUTS))]
    noticed = [each for notice in notices for each in getattr(notice, "queries", ())]
    assert all(isinstance(each, Noticed) and each.trace == trace_of(context) for each in noticed)
    assert len(noticed) == len(ENDS)
