"""Follow a pipeline's answers and export their traces.

Answers hold every time of a query, and their records the caller's trace context in the headers.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Message

from headrace.client.formats import Read, answer_reader
from headrace.client.topic_clients import Tail
from headrace.traces import otlp
from headrace.traces.answer_spans import spans_of
from headrace.traces.delivery import Delivery
from headrace.traces.query_trace import TraceContext, context_of
from operators.outcomes import outcome_of
from schemas.codec.single_object import CodecError
from schemas.effects import RESULTS
from schemas.pipeline import Pipeline
from schemas.records import ANSWERED, Answer, Trace
from schemas.trace_context import trace_of
from streams.kafka.kafka_client import read_headers
from streams.kafka.kafka_config import KafkaConfig
from streams.observers.metrics import BOUNDS_S, MetricSample, Observed, TracedValue
from streams.topics import physical

TURN_S = 0.5
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


Traced = tuple[Answer, Trace | None]  # an answer, and its caller's trace context


def traced_answers(messages: Iterable[Message], read: Read) -> list[Traced]:
    """Return the answers in records of the results topic; skip other records."""
    found: list[Traced] = []
    for message in messages:
        with suppress(CodecError):  # a foreign record
            headers, _ = read_headers(message)
            found.append((read(message.value() or b""), trace_of(headers or ())))
    return found


class TraceExport:
    """The export of a pipeline's traces to a collector; ``samples`` may be called from another
    thread.

    ``answers`` counts those seen, ``traces`` those chosen of them; ``delivery`` counts spans.
    """

    def __init__(self, pipeline: Pipeline, sampling: Sampling, delivery: Delivery) -> None:
        self.delivery = delivery
        self.answers = self.traces = 0
        self._pipeline, self._sampling = pipeline, sampling
        self._seconds = Observed(tuple(sorted({*BOUNDS_S, pipeline.slo_s})))

    def run(self, kafka: KafkaConfig, since_s: float | None) -> None:
        """Export the traces of the pipeline's answers until the delivery's end.

        ``since_s`` (epoch seconds) goes back in time, as far as the topics keep. Raises
        ``BrokerError`` if the topics cannot be read.
        """
        read = answer_reader(self._pipeline)
        with closing(Tail(kafka, physical(self._pipeline.name, RESULTS), since_s)) as results:
            self.follow(lambda: traced_answers(results.messages(TURN_S), read))

    def follow(self, turn: Callable[[], list[Traced]]) -> None:
        """Export the answers that ``turn`` returns at each call, until the delivery's end."""
        while not self.delivery.ended:
            self.export(turn())

    def export(self, answers: list[Traced]) -> None:
        """Deliver the spans of those answers that are sampled."""
        name = self._pipeline.name
        found = [(answer, context_of(caller, name, answer.origin)) for answer, caller in answers]
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
