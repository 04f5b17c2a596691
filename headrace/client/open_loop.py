"""Open-loop load: send queries at their arrival times, independent of earlier answers."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any

from headrace.client.formats import answer_reader, answers_in
from headrace.client.topic_clients import Asker, Interruptible, Labeller, Tail
from headrace.results.tally import Sent
from headrace.terminal import progress
from schemas.effects import RESULTS
from schemas.pipeline import Pipeline
from schemas.records import Answer, Label, Query, Value
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import physical

STEP_S = 0.02  # the longest wait of a step for answers
PATIENCE_S = 3.0  # beyond deadline and grace, for an answer in transfer
# The same until a query of a load counts as lost: a role that died is back within 15 s on a busy
# machine, and answers then.
LOST_AFTER_S = 30.0
EVERY_ONE = repeat(1)  # the sizes of queries without sizes
Inputs = Iterator[tuple[Value, Any]]  # payload, truth


class OpenLoop(Interruptible):
    """Sends ``inputs`` at ``times_s`` (seconds after ``start``) and collects the answers.

    It has no thread: ``step`` sends the queries that are due and reads answers. With ``labels`` the
    truth of every query is sent to the labels topic.
    """

    def __init__(
        self,
        kafka: KafkaConfig,
        pipeline: Pipeline,
        prefix: str,
        *,
        deadline_s: float | None = None,
        slo_class: str = "",
        session: str = "",
        labels: bool = False,
    ) -> None:
        self._pipeline = pipeline
        self._session = session
        self._labels = Labeller(kafka, pipeline) if labels else None
        self._prefix = prefix
        self._deadline_s = deadline_s
        self._slo_class = slo_class
        self._tail = Tail(kafka, physical(pipeline.name, RESULTS))
        self._asker = Asker(kafka, pipeline)
        self._read = answer_reader(pipeline)
        self._truths: dict[str, Any] = {}
        self._times_s: Sequence[float] = ()
        self._inputs: Inputs = iter(())
        self._sizes: Iterator[int] = EVERY_ONE
        self._began_s = self._start_s = 0.0  # epoch seconds, and of the clock that no one sets
        self._next = 0
        self._last_s = 0.0
        self._unsent: tuple[Value, Any, int] | None = None  # the client had no room for it
        self.answers: dict[str, Answer] = {}
        self.behind_s = 0.0  # the largest delay of a query behind its arrival time

    def start(
        self, times_s: Sequence[float], inputs: Inputs, sizes: Iterator[int] = EVERY_ONE
    ) -> None:
        """Start the clock of the load."""
        self._times_s, self._inputs, self._sizes = times_s, inputs, sizes
        self._began_s, self._start_s, self._next = time.time(), time.monotonic(), 0

    @property
    def began_s(self) -> float:
        """The start of the load (epoch seconds)."""
        return self._began_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since ``start``."""
        return time.monotonic() - self._start_s

    @property
    def sent(self) -> int:
        """The number of queries sent."""
        return len(self._truths)

    def step(self) -> None:
        """Send the queries that are due, for ``STEP_S`` at most, then wait for answers until the
        next is due or ``STEP_S``.

        Raises ``BrokerError`` for a query that the broker does not take.
        """
        until = time.monotonic() + STEP_S  # a load that is behind reads answers too
        has_room = True
        while has_room and self._due_in_s() <= 0 and time.monotonic() < until:
            self.behind_s = max(self.behind_s, -self._due_in_s())
            has_room = self._send()
        self._asker.poll()
        for reason in self._asker.refused.values():
            raise BrokerError(f"the broker did not take a query: {reason}")
        wait_s = max(0.0, min(STEP_S, self._due_in_s())) if has_room else STEP_S
        values = self._tail.take(wait_s)
        for answer in answers_in(values, self._read):
            # The first answer counts; a second one for the same id would be a bug of egress.
            if answer.id in self._truths:
                self.answers.setdefault(answer.id, answer)

    def _due_in_s(self) -> float:
        if self._next >= len(self._times_s):
            return STEP_S
        return float(self._times_s[self._next]) - self.elapsed_s

    def _send(self) -> bool:
        """Send the next query; return False if too many wait for the broker."""
        payload, truth, size = item = self._unsent or (*next(self._inputs), next(self._sizes))
        name = f"{self._prefix}-{len(self._truths)}"
        now = time.time()
        deadline = None if self._deadline_s is None else now + self._deadline_s
        query = Query(
            payload=payload, id=name, deadline_s=deadline, slo_class=self._slo_class, size=size,
            session=self._session,
        )  # fmt: skip
        try:
            self._asker.ask(query)
        except BufferError:
            self._unsent = item
            return False
        self._unsent = None
        self._truths[name] = truth
        if self._labels is not None:
            self._labels.send(Label(id=name, truth=truth))
        self._last_s = time.monotonic()
        self._next += 1
        return True

    @property
    def all_sent(self) -> bool:
        """Whether every query of the schedule is sent."""
        return self._next >= len(self._times_s)

    @property
    def over(self) -> bool:
        """Whether every query is sent, and answered or past its last possible answer."""
        if not self.all_sent:
            return False
        if len(self.answers) == len(self._truths):
            return True
        wait_s = answer_by_s(self._pipeline, self._deadline_s, self._slo_class)
        return time.monotonic() > self._last_s + wait_s + LOST_AFTER_S

    def accounts(self) -> tuple[list[Sent], Mapping[str, Answer]]:
        """Return the queries that the broker acknowledged, and the answers by id."""
        self._asker.flush()
        acknowledged = self._asker.acknowledged
        sent = [Sent(n, acknowledged[n], t) for n, t in self._truths.items() if n in acknowledged]
        return sent, self.answers

    def abandon(self) -> None:
        """Discard the queries and labels that the broker has not acknowledged."""
        self._asker.abandon()
        if self._labels is not None:
            self._labels.abandon()

    def close(self) -> None:
        """Close the Kafka clients."""
        if self._labels is not None:
            self._labels.close()
        self._asker.close()
        self._tail.close()


def answer_by_s(pipeline: Pipeline, deadline_s: float | None, slo_class: str) -> float:
    """Return the latest time at which egress answers a query, in seconds after it was sent."""
    own_s = pipeline.slo_classes.get(slo_class, pipeline.slo_s)
    return (own_s if deadline_s is None else deadline_s) + pipeline.grace_s


def run_to_end(loop: OpenLoop, each: Callable[[], None]) -> None:
    """Step until the load is over, calling ``each`` after every step."""
    while not loop.over:
        loop.step()
        each()


def generated(queries: Iterator[tuple[Value, Any]], count: int) -> list[tuple[Value, Any]]:
    """Generate ``count`` inputs in advance, so that generation does not delay sending."""
    found = []
    with progress("making inputs", count) as advance:
        for done, query in enumerate(islice(queries, count), 1):
            found.append(query)
            advance(done, "")
    return found
