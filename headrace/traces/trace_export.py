"""Follow a pipeline's answers and export their traces.

Answers hold every time of a query, so nodes do nothing for traces. The caller's context is a Kafka
header of the query's record, found by the answer's origin.
"""

import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Message

from headrace.client.formats import answers_in, reader_of
from headrace.client.topic_clients import Tail
from headrace.traces import otlp
from headrace.traces.answer_spans import spans_of
from headrace.traces.delivery import Delivery
from headrace.traces.trace_context import TRACEPARENT, TraceContext, context_in, own_context
from operators.outcomes import outcome_of
from schemas.effects import QUERIES, RESULTS
from schemas.pipeline import Pipeline
from schemas.records import ANSWERED, Answer, Origin
from streams.kafka.kafka_client import headers_of
from streams.kafka.kafka_config import KafkaConfig
from streams.observers.metrics import BOUNDS_S, MetricSample, Observed, TracedValue
from streams.topics import physical

TURN_S = 0.5
HELD_S = 1.0  # an answer, until its query's record has been read
MOST_WAITING = 200_000  # contexts of queries without an answer
BATCH = 512  # spans in one request
_WHOLE = 1 << 32


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every miss, every answer that used more than ``slow`` of its time, those that callers keep,
    and a ``share`` of the rest."""

    share: float = 0.01
    slow: float = 0.9

    def keeps(self, answer: Answer, context: TraceContext) -> bool:
        """Return whether to export an answer's trace; the same for the same trace."""
        if context.sampled or outcome_of(answer) != ANSWERED:
            return True
        allowed_s = answer.deadline_s - answer.created_s
        if answer.answered_s - answer.created_s > self.slow * allowed_s:
            return True
        return int(context.trace[-8:], 16) < self.share * _WHOLE


class Contexts:
    """The contexts of queries by their origin, of the newest ``most``."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._by_origin: OrderedDict[Origin, TraceContext] = OrderedDict()

    def add(self, origin: Origin, header: bytes) -> None:
        """Keep the context in a query's header; ignore a value that is none."""
        context = context_in(header)
        if context is not None:
            self._by_origin[origin] = context
            if len(self._by_origin) > self._most:
                self._by_origin.popitem(last=False)

    def take(self, origin: Origin, pipeline: str) -> TraceContext:
        """Return the context of an answered query, its own one if its caller sent none."""
        return self._by_origin.pop(origin, None) or own_context(pipeline, origin)


class _Queries(Tail):
    """The input topic, of which only the headers are read."""

    def take_contexts(self, into: Contexts) -> None:
        """Read to the end of the topic."""
        while messages := self.messages(0.0):
            for message in messages:
                header = _traceparent(message)
                if header is not None:
                    into.add(Origin(message.partition() or 0, message.offset() or 0), header)


def _traceparent(message: Message) -> bytes | None:
    headers, _ = headers_of(message)
    return next((value for name, value in headers or () if name == TRACEPARENT and value), None)


class TraceExport:
    """The export of a pipeline's traces to a collector; ``samples`` may be called from another
    thread.

    ``answers`` counts those seen, ``traces`` those chosen of them; ``delivery`` counts spans, and
    has the same ``clock``.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        sampling: Sampling,
        delivery: Delivery,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.delivery = delivery
        self.answers = self.traces = 0
        self._pipeline, self._sampling, self._clock = pipeline, sampling, clock
        self._contexts = Contexts()
        self._seconds = Observed(tuple(sorted({*BOUNDS_S, pipeline.slo_s})))

    def run(self, kafka: KafkaConfig, since_s: float | None) -> None:
        """Export the traces of the pipeline's answers until the delivery's end.

        ``since_s`` (epoch seconds) goes back in time, as far as the topics keep. Raises
        ``BrokerError`` if the topics cannot be read.
        """
        read, name = reader_of(self._pipeline), self._pipeline.name
        with (
            closing(_Queries(kafka, physical(name, QUERIES), since_s)) as queries,
            closing(Tail(kafka, physical(name, RESULTS), since_s)) as results,
        ):

            def turn() -> list[Answer]:
                answers = answers_in(results.take(TURN_S), read)
                queries.take_contexts(self._contexts)
                return answers

            self.follow(turn)

    def follow(self, turn: Callable[[], list[Answer]]) -> None:
        """Export the answers that ``turn`` returns at each call, until the delivery's end."""
        held: deque[tuple[float, list[Answer]]] = deque()
        while not self.delivery.ended:
            held.append((self._clock(), turn()))
            while held and self._clock() > held[0][0] + HELD_S:
                self.export(held.popleft()[1])
        for _, answers in held:
            self.export(answers)

    def export(self, answers: list[Answer]) -> None:
        """Deliver the spans of those answers that are sampled."""
        name = self._pipeline.name
        found = [(answer, self._contexts.take(answer.origin, name)) for answer in answers]
        chosen = [each for each in found if self._sampling.keeps(*each)]
        self.answers += len(answers)
        self.traces += len(chosen)
        spans = [span for answer, context in chosen for span in spans_of(answer, context, name)]
        dropped = self.delivery.dropped
        for start in range(0, len(spans), BATCH):
            self.delivery.deliver(otlp.request_of(spans[start : start + BATCH], name))
        if self.delivery.dropped == dropped:  # else some of the traces are not with the collector
            for answer, context in chosen:
                took_s = answer.answered_s - answer.created_s
                self._seconds.add_traced(TracedValue(context.trace, took_s, answer.answered_s))

    def samples(self) -> Iterator[MetricSample]:
        """Yield the samples of ``streams/observers/metric_table.py``."""
        yield "exported_spans_total", ("taken",), float(self.delivery.taken)
        yield "exported_spans_total", ("dropped",), float(self.delivery.dropped)
        yield "exported_query_seconds", (), self._seconds


def delivery_to(endpoint: str, tell: Callable[[str], None], length_s: float | None) -> Delivery:
    """Return the delivery to a collector, for an export of ``length_s`` from now (None: endless).

    ``tell`` gets a sentence when the collector takes no spans. Raises ``Unsuccessful`` for an
    endpoint that is no address.
    """
    otlp.url_of(endpoint)
    return Delivery(
        partial(otlp.send, endpoint), tell,
        clock=time.monotonic, sleep=time.sleep, chance=random.random, length_s=length_s,
    )  # fmt: skip
