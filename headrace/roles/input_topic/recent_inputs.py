"""Inputs of sessions, read back from the topics, as samples.

Labelled inputs are in the order of the labels, which have one partition, so that every profiler
sees the same prefix. The set grows while labels arrive. Profiles wait for its first ``ENOUGH``, at
most ``WAITS_S`` from the first request on; after that the set ends, for each block, at the newest
label. Inputs for a reference need no labels: they are those between two time stamps; those of one
millisecond are in the order of partitions.

Inputs are read where they were written: on the ``source`` of the session, a broker at the edge or
that of the pipeline. Labels are on the broker of the pipeline.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextlib import closing

from control.problem.sample_sets import InputSet
from headrace.client.topic_clients import Tail
from headrace.roles.input_topic.recent_sizes import fetched
from operators.profiler import Sample
from schemas.effects import LABELS, QUERIES
from schemas.pipeline import Pipeline
from schemas.records import Label, Query, Value
from streams.codecs.wire import decoder
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical

MOST = 1000  # samples of a set
MOST_UNLABELLED = 4000  # inputs of a session that wait for their labels, the newest
MOST_LABELLED = 2 * MOST  # inputs read after their labels; repeated labels make no samples
# Samples; a profile does not wait for more. By simulated scores (five digits each, floor 0.8) a
# configuration of 0.9 is accepted in 88 of 100 cases (96 with 50), one at the floor in 15 (13).
ENOUGH = 30
WAITS_S = 5.0  # for the labels of the first samples
READ_WITHIN_S = 5.0
LATE_S = 0.5  # an input may reach the broker after its label


class InputJoin:
    """Joins a session's inputs with their labels; ``samples`` grow in the order of the labels."""

    def __init__(self) -> None:
        self._inputs: OrderedDict[str, Value] = OrderedDict()
        self._labelled: dict[str, Value] = {}  # inputs whose labels wait
        self._labels: deque[tuple[Label, float]] = deque()
        self._wanted: set[str] = set()  # ids of these labels
        self.samples: list[Sample] = []

    def add_input(self, name: str, payload: Value) -> None:
        """Add an input of the session. Of those without a label the newest are kept, of those with
        one the oldest: an hour of inputs is read after its labels."""
        if name in self._wanted and len(self._labelled) < MOST_LABELLED:
            self._labelled[name] = payload
            return
        self._inputs[name] = payload
        if len(self._inputs) > MOST_UNLABELLED:
            self._inputs.popitem(last=False)

    def add_label(self, label: Label, at_s: float) -> None:
        """Add a label that was written at ``at_s``; one without a truth makes no sample."""
        if label.truth is not None:
            self._labels.append((label, at_s))
            self._wanted.add(label.id)

    def join(self, read_s: float) -> None:
        """Make samples; every input that was written before ``read_s`` has been added.

        A label without an input is another session's, or its input is not among those read. It
        holds up the labels after it while its input may still arrive.
        """
        while self._labels:
            label, at_s = self._labels[0]
            found = next((i for i in (self._labelled, self._inputs) if label.id in i), None)
            if found is not None:
                payload = found.pop(label.id)
                self.samples.append(Sample(len(self.samples), payload, label.truth))
            elif at_s > read_s - LATE_S:
                return
            self._labels.popleft()
        self._wanted.clear()
        self._labelled.clear()


class RecentInputs:
    """The labelled inputs of a session, "" for all, from a time on. Raises ``BrokerError``."""

    def __init__(
        self, kafka: KafkaConfig, source: KafkaConfig, pipeline: Pipeline, inputs: InputSet
    ) -> None:
        self._session, since_s = inputs.session, inputs.since_s
        self._query, self._label = decoder(pipeline, QUERIES), decoder(pipeline, LABELS)
        self._queries = Tail(source, physical(pipeline.name, QUERIES), since_s)
        self._labels = Tail(kafka, physical(pipeline.name, LABELS), since_s)
        self._join = InputJoin()
        self._opened_s = time.monotonic()

    def of(self, first: int, upto: int) -> list[Sample] | None:
        """Return samples ``first`` to ``upto - 1``, fewer at the end of the set; None: their labels
        may still arrive."""
        if len(self._join.samples) < min(upto, MOST):
            self._read()
        count = len(self._join.samples)
        if awaited(count, upto, time.monotonic() - self._opened_s):
            return None
        return self._join.samples[first : min(upto, MOST)]

    def close(self) -> None:
        """Close the consumers."""
        with closing(self._queries), closing(self._labels):
            pass

    def _read(self) -> None:
        """Read the labels that are on the topic, and the inputs that were sent before them."""
        for message in self._labels.written(READ_WITHIN_S):
            label = self._label(fetched(message))
            if isinstance(label, Label):
                # A producer may stamp its record with any time.
                self._join.add_label(label, min(message.timestamp()[1] / 1e3, time.time()))
        read_s = time.time()
        for message in self._queries.written(READ_WITHIN_S):
            query = self._query(fetched(message))
            if not isinstance(query, Query):
                continue
            if query.id and self._session in ("", query.session):
                self._join.add_input(query.id, query.payload)
        self._join.join(read_s)


class InputsBetween:
    """The inputs of a session between two times, labelled or not. Raises ``BrokerError``."""

    def __init__(self, source: KafkaConfig, pipeline: Pipeline, inputs: InputSet) -> None:
        self._inputs = inputs
        self._query = decoder(pipeline, QUERIES)
        self._queries = Tail(source, physical(pipeline.name, QUERIES), inputs.since_s)
        self._samples: list[Sample] | None = None

    def of(self, first: int, upto: int) -> list[Sample] | None:
        """Return samples ``first`` to ``upto - 1``, fewer at the end of the set; None: inputs of
        that time may still reach the broker."""
        if self._samples is None:
            if time.time() < self._inputs.until_s + LATE_S:
                return None
            self._samples = self._read()
        return self._samples[first:upto]

    def close(self) -> None:
        """Close the consumer."""
        self._queries.close()

    def _read(self) -> list[Sample]:
        taken = []
        for message in self._queries.written(READ_WITHIN_S):
            query = self._query(fetched(message))
            if isinstance(query, Query):
                at = message.timestamp()[1], message.partition(), message.offset()
                taken.append((at, query.session, query.payload))
        return between(self._inputs, taken)


def between(
    inputs: InputSet, taken: Iterable[tuple[tuple[int, int, int], str, Value]]
) -> list[Sample]:
    """Return the oldest ``MOST`` samples of a set, of inputs as ((milliseconds, partition, offset),
    session, payload)."""
    since_ms, until_ms = inputs.since_s * 1e3, inputs.until_s * 1e3
    mine = sorted(
        ((at, payload) for at, session, payload in taken
         if session == inputs.session and since_ms <= at[0] <= until_ms),
        key=lambda each: each[0],
    )  # fmt: skip
    return [Sample(number, payload) for number, (_, payload) in enumerate(mine[:MOST])]


def awaited(count: int, upto: int, waited_s: float) -> bool:
    """Return whether to wait for samples up to ``upto``, of which ``count`` have arrived."""
    return count < min(upto, ENOUGH) and waited_s < WAITS_S
