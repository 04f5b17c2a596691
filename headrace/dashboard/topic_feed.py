"""Read the topics of the pipelines on the page, once for any number of viewers.

The control topics are shared by all pipelines and read once. Only the newest answers of each look
are decoded, for the list of late queries; the figures come from reports.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from headrace.client.accuracy_topic import newest_accuracy
from headrace.client.backlog import Backlog
from headrace.client.formats import answer_reader, answers_in
from headrace.client.topic_clients import PlanTail, Tail, decoded
from headrace.config.cluster_cost import prices
from headrace.config.pipeline_file import PipelineFile
from headrace.dashboard.late_queries import LateQueries
from headrace.dashboard.pipeline_history import KEPT_S, PipelineHistory
from headrace.dashboard.pipeline_view import pipeline_view
from headrace.status.snapshot import board_of
from schemas.effects import ACCURACY, COMMAND_RESULTS, REPORTS, RESULTS, SESSIONS
from schemas.records import CommandResult, Plan, Report, Session
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import physical

READ_BACK_S = 120.0  # of reports at the start; a pipeline of ten nodes writes 6,000 in that time
ANSWERS_BACK_S = 30.0
ANSWERS_A_LOOK = 200
BACKLOG_EVERY_S, BACKLOG_WITHIN_S = 2.0, 2.0
FIRST_WORD_S = 0.6  # three report intervals
CATCH_UP_S = 10.0
SHARED = ""
TIMED = (Plan, CommandResult, Report)


class TopicFeed:
    """The pipelines' histories, fed from the broker. Not safe for several threads at once.

    Raises ``BrokerError`` if the broker or a topic is not available at first. Later, a broker that
    does not answer is a problem of the pipelines' views.
    """

    def __init__(self, files: Sequence[PipelineFile], kafka: KafkaConfig) -> None:
        now = time.time()
        self._stack = ExitStack()
        self._plans = PlanTail(kafka)
        self._stack.callback(self._plans.close)
        self._reports = self._tail(kafka, physical(SHARED, REPORTS), now - READ_BACK_S)
        self._caught_up = False
        self._results = self._tail(kafka, physical(SHARED, COMMAND_RESULTS), now - KEPT_S)
        self._pipelines = [_PipelineFeed(file, kafka, now, self._tail) for file in files]

    def _tail(self, kafka: KafkaConfig, topic: str, since_s: float | None) -> Tail:
        tail = Tail(kafka, topic, since_s)
        self._stack.callback(tail.close)
        return tail

    def look(self) -> dict[str, dict[str, Any]]:
        """Read the new records and return the view of every pipeline."""
        records: list[object] = []
        trouble = ""
        try:
            records = in_turn(map(decoded, self._shared()))
        except BrokerError as error:
            trouble = str(error)
        now = time.time()
        for each in self._pipelines:
            each.look(records, now, trouble)
        return {each.name: each.view(now) for each in self._pipelines}

    def _shared(self) -> Iterator[bytes]:
        if not self._caught_up:
            self._caught_up = True
            yield from self._past()
        for tail in (self._plans, self._results, self._reports):
            while values := tail.take(0.0):
                yield from values

    def _past(self) -> Iterator[bytes]:
        """Yield the records that are already on the topics, reports up to the present moment."""
        yield from self._plans.take(FIRST_WORD_S)
        yield from self._results.take(FIRST_WORD_S)
        now, until = time.time(), time.monotonic() + CATCH_UP_S
        while time.monotonic() < until and (values := self._reports.take(FIRST_WORD_S)):
            yield from values
            newest = decoded(values[-1])
            if isinstance(newest, Report) and newest.sent_s >= now:
                return

    def close(self) -> None:
        """Close the Kafka clients."""
        self._stack.close()


def in_turn(records: Iterable[object]) -> list[object]:
    """Return plans, results of commands and reports in the order of their times."""
    return sorted((each for each in records if isinstance(each, TIMED)), key=_time)


def _time(record: Any) -> float:
    if isinstance(record, Plan):
        return record.issued_s
    return record.sent_s if isinstance(record, Report) else record.finished_s


class _PipelineFeed:
    """One pipeline's history, with the topics that are its own."""

    def __init__(self, file: PipelineFile, kafka: KafkaConfig, now: float, tail: Any) -> None:
        pipeline = file.pipeline
        self.name = pipeline.name
        self._pipeline = pipeline
        self._history = PipelineHistory(board_of(pipeline, prices(file.cluster)))
        self._late = LateQueries()
        self._read = answer_reader(pipeline)
        self._answers: Tail = tail(kafka, self._topic(RESULTS), now - ANSWERS_BACK_S)
        self._backlog = Backlog(kafka, pipeline, BACKLOG_WITHIN_S)
        self._asked_s = 0.0
        self._trouble = ""  # of the last look, or of the last request for the backlog
        self._sessions: dict[bytes, Session] = {}
        self._opened = tail(kafka, self._topic(SESSIONS), 0.0) if pipeline.sessions else None
        self._accuracy = tail(kafka, self._topic(ACCURACY), None) if pipeline.labels else None
        if pipeline.labels:
            self._history.see((newest_accuracy(kafka, self.name),), now)

    def _topic(self, logical: str) -> str:
        return physical(self.name, logical)

    def look(self, records: Sequence[object], now: float, trouble: str) -> None:
        """Add the shared records and the new records of the pipeline's own topics.

        ``trouble`` is why there may be more shared records, "": there are not.
        """
        self._history.see(records, now)
        try:
            self._read_own(now)
        except BrokerError as error:
            self._history.waiting, self._trouble = None, str(error)
        self._trouble = trouble or self._trouble
        self._history.reach(now)

    def _read_own(self, now: float) -> None:
        if self._accuracy is not None:
            accuracy = [decoded(value) for value in self._accuracy.take(0.0)]
            self._history.see(accuracy, now)
        self._late.see(answers_in(self._newest_answers(), self._read))
        self._note_sessions()
        if not 0.0 <= now - self._asked_s < BACKLOG_EVERY_S:  # the clock may be set back
            self._asked_s = now
            self._history.waiting, self._trouble = self._backlog.slots(), ""

    def _newest_answers(self) -> list[bytes]:
        found: list[bytes] = []
        while values := self._answers.take(0.0):
            found = [*found, *values][-ANSWERS_A_LOOK:]
        return found

    def _note_sessions(self) -> None:
        for message in self._opened.messages(0.0) if self._opened is not None else ():
            record = decoded(message.value() or b"")
            if isinstance(record, Session):
                self._sessions[message.key() or b""] = record
            else:
                self._sessions.pop(message.key() or b"", None)  # closed

    def view(self, now: float) -> dict[str, Any]:
        """Return what the page shows of the pipeline."""
        sessions, late = [*self._sessions.values()], self._late.rows()
        return pipeline_view(self._pipeline, self._history, sessions, late, now, self._trouble)
