"""Run metrics: outcomes, causes, latencies, accuracy and devices of a run, counted as queries end.

outcome     of a query: operators/outcomes.py
bad items   items dropped, failed or lost anywhere, once each; late leaves; and one per query
            that ended badly as a whole: refused, or with a failed combine function
late leaf   a leaf that ended after the deadline, and the last leaf of a late query
accuracy    mean over the leaves in time of the accuracy of their path: as measured, else the
            product of its variants'; ``accuracy_leaf_mean`` by leaf task first, then their mean.
            Leaves of a path with a variant of unknown accuracy are left out

Late items of a query that egress gave up are counted on arrival; if none arrives, one lost item
represents them.

``QueryMetrics`` counts answers; ``RunMetrics`` also counts their items and the plans. It observes
the nodes of any driver; for answers and plans read from topics, call ``take`` and ``plan``.
``headrace/results`` has the views: figures, the tally of a load, time series.
"""

from collections.abc import Mapping, Sequence

from operators.drop_reasons import EGRESS_TASK
from operators.join import VARIANT, path_accuracy
from operators.outcomes import LATE, LOST, OUTCOMES, cause_of, missed_at, outcome_of
from schemas.effects import (
    OUTPUTS,
    PLANS,
    RESULTS,
    Arrived,
    Effect,
    Event,
    Inferred,
    Send,
    Woke,
)
from schemas.enumerations import ReasonCode
from schemas.pipeline import Pipeline
from schemas.records import ANSWERED, DROPPED, Answer, End, Hop, Origin, Plan, Work
from streams.observers.plan_usage import PlanUsage
from streams.observers.quantiles import Quantiles

STRAGGLE_S = 60.0  # items that arrive later than this after their query was given up are lost
UNFINISHED = "unfinished"  # the cause of a query that egress gave up
_COUNTED = frozenset((RESULTS, PLANS))  # topics


def given_up(answer: Answer) -> bool:
    """Return whether egress closed a query before all its items arrived."""
    return cause_of(answer) == UNFINISHED


class QueryMetrics:
    """Queries by outcome, the causes of the bad ones, and the latency of those with a result.

    ``counts`` by outcome; ``classes`` by SLO class and outcome, of queries with an answer;
    ``misses`` by outcome, task and cause; ``latency`` in seconds, of answered, late and incomplete
    queries.
    """

    def __init__(self) -> None:
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.misses: dict[tuple[str, str, str], int] = {}
        self.classes: dict[str, dict[str, int]] = {}
        self.latency = Quantiles()

    def count(self, answer: Answer | None) -> str:
        """Count a query by its answer (None: lost); return its cause, "" if answered in time."""
        outcome = outcome_of(answer)
        self.counts[outcome] += 1
        if answer is None:
            self._miss((LOST, "", LOST), 1)
            return LOST
        of_class = self.classes.get(answer.slo_class)
        if of_class is None:
            of_class = self.classes[answer.slo_class] = dict.fromkeys(OUTCOMES, 0)
        of_class[outcome] += 1
        if answer.outcome == ANSWERED:
            self.latency.add(answer.answered_s - answer.created_s)
        if outcome == ANSWERED:
            return ""
        cause = cause_of(answer)
        self._miss((outcome, missed_at(answer), cause), 1)
        return cause

    def lost(self, queries: int) -> None:
        """Count queries without an answer."""
        if queries:
            self.counts[LOST] += queries
            self._miss((LOST, "", LOST), queries)

    def _miss(self, key: tuple[str, str, str], queries: int) -> None:
        self.misses[key] = self.misses.get(key, 0) + queries

    @property
    def queries(self) -> int:
        """The number of counted queries."""
        return sum(self.counts.values())

    @property
    def violation(self) -> float | None:
        """The share of queries not answered completely and in time."""
        return 1 - self.counts[ANSWERED] / self.queries if self.queries else None

    @property
    def causes(self) -> dict[str, int]:
        """Queries not answered completely and in time, by cause, sorted."""
        found: dict[str, int] = {}
        for (_, _, cause), queries in sorted(self.misses.items()):
            found[cause] = found.get(cause, 0) + queries
        return dict(sorted(found.items()))

    def latency_ms(self, quantile: float) -> float | None:
        """Return a quantile of the latency in ms, to a microsecond; None without latencies."""
        seconds = self.latency.at(quantile)
        return None if seconds is None else round(seconds * 1e3, 3)


class RunMetrics(QueryMetrics):
    """Queries created from ``since_s`` on, their items, and the plans in force.

    ``bad`` counts items by the task at which they ended ("": unknown) and the cause.
    """

    def __init__(
        self, pipeline: Pipeline, accuracies: Mapping[str, float], since_s: float = 0.0
    ) -> None:
        super().__init__()
        self._leaf_tasks = {task.name for task in pipeline.tasks if not task.children}
        self._tasks = set(pipeline.task_names)
        self._along = path_accuracy(accuracies)
        self.usage = PlanUsage()
        self.begin(since_s)

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        kind = type(event)
        if kind is Inferred:
            self.finished += len(event.outputs)  # type: ignore[union-attr]
            return  # a worker sends neither answers nor plans
        if self._given_up and kind is Arrived:
            record = event.record  # type: ignore[union-attr]
            if type(record) is Work and event.topic == OUTPUTS:  # type: ignore[union-attr]
                self._straggled(record)
        for effect in effects:
            if type(effect) is Send and effect.topic in _COUNTED:
                if effect.topic == RESULTS:
                    self.take(effect.record, kind is Woke, now)  # type: ignore[arg-type]
                elif type(effect.record) is Plan:
                    self.plan(effect.record, now)

    def begin(self, now: float) -> None:
        """Restart all counts at ``now``, under the plan in force; discard the warm-up."""
        self.since_s = now
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.misses = {}
        self.classes = {}
        self.latency = Quantiles()
        self.finished = 0  # items that ran at a task
        self.dropped = 0  # items that were dropped at one
        self.bad: dict[tuple[str, str], int] = {}
        self._leaves = {name: 0 for name in sorted(self._leaf_tasks)}  # in time
        self._judged = dict.fromkeys(self._leaves, 0)  # those whose path's accuracy is known
        self._rights = dict.fromkeys(self._leaves, 0.0)  # sum of their accuracies
        self._given_up: dict[Origin, list[float]] = {}  # [time, items that arrived since]
        self.usage.forget()

    def take(self, answer: Answer, given_up: bool, now: float) -> None:
        """Count an answer; ``given_up``: egress closed the query before it was complete."""
        if answer.created_s < self.since_s:
            return
        cause = self.count(answer)
        if given_up:
            self._forget(now)
            self._given_up[answer.origin] = [now, 0]
        if not self._items(answer) and answer.outcome != ANSWERED and not given_up:
            self._bad(answer.task, cause, 1)

    def plan(self, plan: Plan, at_s: float) -> None:
        """Take a plan that came into force."""
        self.usage.plan(plan, at_s)

    def close(self, queries: int) -> None:
        """Stop counting; of ``queries`` created, those without an answer count as lost."""
        for _, came in self._given_up.values():
            self._never_came(came)
        self._given_up.clear()
        lost = queries - self.queries
        self.lost(lost)
        if lost:
            self._bad("", LOST, lost)

    # ------------------------------------------------------------------ the figures

    @property
    def stage_queries(self) -> int:
        """Items finished or dropped at tasks."""
        return self.finished + self.dropped

    @property
    def bad_items(self) -> int:
        """The total of bad items."""
        return sum(self.bad.values())

    @property
    def leaves(self) -> int:
        """The number of leaves in time."""
        return sum(self._leaves.values())

    @property
    def judged(self) -> int:
        """The number of leaves in time whose path's accuracy is known."""
        return sum(self._judged.values())

    @property
    def branch_violation(self) -> float | None:
        """The share of bad items among bad items and leaves in time."""
        bad = self.bad_items
        return bad / (bad + self.leaves) if bad + self.leaves else None

    @property
    def accuracy(self) -> float | None:
        """Mean path accuracy over leaves in time; None if none is known."""
        return sum(self._rights.values()) / self.judged if self.judged else None

    @property
    def accuracy_leaf_mean(self) -> float | None:
        """Mean path accuracy per leaf task, averaged over the tasks with a known one."""
        means = [self._rights[task] / count for task, count in self._judged.items() if count]
        return sum(means) / len(means) if means else None

    def devices_mean(self, until_s: float) -> float:
        """Return the mean number of devices that the plans in force used."""
        return self.usage.devices_mean(self.since_s, until_s) or 0.0

    # ------------------------------------------------------------------ items

    def _items(self, answer: Answer) -> int:
        """Count how the branches of an answer ended; return how many ended badly."""
        in_time: list[tuple[Hop, ...]] = []
        late: list[tuple[Hop, ...]] = []
        bad = 0
        for end, path in zip(answer.ends, answer.paths, strict=True):
            if end.outcome != ANSWERED:
                self._ended(end)
                bad += 1
            elif end.task in self._leaf_tasks:
                (late if path[-1].finished_s > answer.deadline_s else in_time).append(path)
        if answer.late and not late and in_time:
            # The last leaf ended in time, but the hop to egress used up the rest.
            late.append(max(in_time, key=lambda path: path[-1].finished_s))
            in_time.remove(late[0])
        for path in late:
            self._bad(path[-1].task, LATE, 1)
        for path in in_time:
            self._leaf(path)
        return bad

    def _ended(self, end: End) -> None:
        # An answered branch is bad if its query was closed without it.
        cause = end.reason_code if end.outcome != ANSWERED else ReasonCode.OTHER
        self._bad(end.task, cause, 1)
        if end.outcome == DROPPED and end.task in self._tasks:
            self.dropped += 1

    def _bad(self, task: str, cause: str, items: int) -> None:
        self.bad[task, cause] = self.bad.get((task, cause), 0) + items

    def _leaf(self, path: tuple[Hop, ...]) -> None:
        accuracy, task = self._along(tuple(map(VARIANT, path))), path[-1].task
        self._leaves[task] += 1
        if accuracy is not None:
            self._judged[task] += 1
            self._rights[task] += accuracy

    def _straggled(self, work: Work) -> None:
        came = self._given_up.get(work.origin)
        if came is None:
            return
        for item in work.items:
            end = item.end
            if end is not None and (end.outcome != ANSWERED or end.task in self._leaf_tasks):
                came[1] += 1
                self._ended(end)

    def _forget(self, now: float) -> None:
        """Stop waiting for items of queries given up ``STRAGGLE_S`` ago."""
        while self._given_up:
            origin, (since_s, came) = next(iter(self._given_up.items()))  # the oldest
            if now - since_s < STRAGGLE_S:
                return
            self._never_came(came)
            del self._given_up[origin]

    def _never_came(self, came: float) -> None:
        if not came:
            self._bad(EGRESS_TASK, UNFINISHED, 1)
