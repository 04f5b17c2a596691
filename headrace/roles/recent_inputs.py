"""A session's newest inputs with their labels, read back from the topics, as samples.

The order is that of the labels, which have one partition: every profiler sees the same prefix. The
set grows while labels arrive; a profiler waits a little for those that it is asked for.
"""

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing

from headrace.client.topic_clients import Tail
from headrace.roles.recent_sizes import fetched
from operators.profiler import Sample
from schemas.effects import LABELS, QUERIES
from schemas.pipeline import Pipeline
from schemas.records import Label, Query, Value
from streams.codecs.wire import decoder
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical

MOST = 1000  # samples of a set
MOST_UNLABELLED = 4000  # inputs of a session that wait for their labels, the newest
WAITS_S = 5.0  # for the labels of samples that are asked for
POLL_S = 0.1


class RecentInputs:
    """The labelled inputs of one session from ``since_s`` on. Raises ``BrokerError``."""

    def __init__(
        self, kafka: KafkaConfig, pipeline: Pipeline, session: str, since_s: float
    ) -> None:
        self._session = session
        self._query, self._label = decoder(pipeline, QUERIES), decoder(pipeline, LABELS)
        self._queries = Tail(kafka, physical(pipeline.name, QUERIES), since_s)
        self._labels = Tail(kafka, physical(pipeline.name, LABELS), since_s)
        self._inputs: OrderedDict[str, Value] = OrderedDict()
        self._samples: list[Sample] = []

    def of(self, first: int, upto: int) -> list[Sample]:
        """Return samples ``first`` to ``upto - 1``, fewer if their labels do not come in time."""
        until = time.monotonic() + WAITS_S
        while len(self._samples) < min(upto, MOST) and time.monotonic() < until:
            self._read()
        return self._samples[first:upto]

    def close(self) -> None:
        """Close the consumers."""
        with closing(self._queries), closing(self._labels):
            pass

    def _read(self) -> None:
        """Take the new labels, and the inputs that were sent before them."""
        labels = [self._label(fetched(each)) for each in self._labels.messages(POLL_S)]
        for query in self._new_inputs():
            self._inputs[query.id] = query.payload
            if len(self._inputs) > MOST_UNLABELLED:
                self._inputs.popitem(last=False)
        for label in labels:
            if isinstance(label, Label) and label.truth is not None and label.id in self._inputs:
                payload = self._inputs.pop(label.id)
                self._samples.append(Sample(len(self._samples), payload, label.truth))

    def _new_inputs(self) -> Iterator[Query]:
        while messages := self._queries.messages(POLL_S):
            for record in (self._query(fetched(each)) for each in messages):
                if isinstance(record, Query) and record.session == self._session and record.id:
                    yield record
