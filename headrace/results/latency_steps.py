"""Break the latency of answered queries down into queue, compute and Kafka, task by task.

The steps are those of the branch that finished last, for which the answer waited.
"""

from collections.abc import Iterator, Sequence

from operators.outcomes import outcome_of
from schemas.effects import RESULTS, Effect, Event, Send
from schemas.records import ANSWERED, Answer, Hop
from streams.observers.run_metrics import RunMetrics

LAST_STEP = "to the answer: Kafka, egress"


class StepTimes:
    """Mean times of the steps of answered queries, along the branch that finished last.

    As an observer of a simulation it counts the queries that ``metrics`` counts.
    """

    def __init__(self, metrics: RunMetrics | None = None) -> None:
        self._metrics = metrics
        self._since_s = 0.0
        self._queries = 0
        self._seconds: dict[str, float] = {}

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            if type(effect) is Send and effect.topic == RESULTS:
                self.take(effect.record)  # type: ignore[arg-type]

    def take(self, answer: Answer) -> None:
        """Add an answer; ignore it unless it is complete and in time."""
        metrics = self._metrics
        if metrics is not None:
            if metrics.since_s != self._since_s:
                self._since_s, self._queries, self._seconds = metrics.since_s, 0, {}
            if answer.created_s < self._since_s:
                return
        if outcome_of(answer) == ANSWERED:
            self._queries += 1
            for step, seconds in steps(answer):
                self._seconds[step] = self._seconds.get(step, 0.0) + seconds

    @property
    def mean_ms(self) -> dict[str, float]:
        """The mean of every step over all answered queries, ms, in the order of the path."""
        # The step to the answer is last, also if some branches end earlier than others.
        ordered = sorted(self._seconds.items(), key=lambda each: each[0] == LAST_STEP)
        return {step: seconds / self._queries * 1e3 for step, seconds in ordered}


def steps(answer: Answer) -> Iterator[tuple[str, float]]:
    """Yield the steps of the branch that finished last, in seconds; they sum to the latency."""
    path = max(answer.paths, key=_finished_s, default=())
    at_s = answer.created_s
    for depth, hop in enumerate(path):
        yield f"to {hop.task}: Kafka" + ("" if depth else ", ingress"), hop.received_s - at_s
        yield f"{hop.task}: queue", hop.started_s - hop.received_s
        yield f"{hop.task}: compute", hop.finished_s - hop.started_s
        at_s = hop.finished_s
    yield LAST_STEP, answer.answered_s - at_s


def _finished_s(path: Sequence[Hop]) -> float:
    return path[-1].finished_s if path else float("-inf")
