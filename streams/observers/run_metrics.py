"""What became of the queries of a run? Outcomes, latencies and accuracy, counted as they end.

An observer, so it sees what any driver's nodes do, and holds nothing of a query that has ended.
The meanings are fixed:

    outcome     answered (complete and in time), late, dropped (any part of it), failed, refused,
                or lost; every query has exactly one
    bad items   items dropped, failed, refused or lost anywhere, once each, a refused query once;
                and late leaves
    late leaf   one that ended behind the deadline, and the last one of a late query
    accuracy    mean over the leaves in time of the accuracy of their path: as measured, else the
                product of its variants'; ``accuracy_leaf_mean`` by leaf task first, then their mean

Of a query that egress gave up, what comes later is counted as it comes; where nothing comes, one
lost item stands for it.
"""

from collections.abc import Mapping, Sequence

from operators.join import along
from operators.outcomes import OUTCOMES, outcome_of
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
from schemas.pipeline import Pipeline
from schemas.records import ANSWERED, DROPPED, REFUSED, Answer, End, Hop, Origin, Plan, Work
from streams.observers.quantiles import Quantiles

STRAGGLE_S = 60.0  # what has not come so long after its query was given up is lost


class Account:
    """Counts from ``since_s`` on: queries by when they were made, work by when it was done."""

    def __init__(
        self, pipeline: Pipeline, accuracies: Mapping[str, float], since_s: float = 0.0
    ) -> None:
        self._leaf_tasks = {task.name for task in pipeline.tasks if not task.children}
        self._tasks = set(pipeline.task_names)
        self._accuracies = accuracies
        self._along: dict[tuple[tuple[str, str], ...], float] = {}  # by path, once it was taken
        self._devices = 0
        self.begin(since_s)

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        kind = type(event)
        if kind is Inferred:
            self.finished += len(event.outputs)  # type: ignore[union-attr]
        elif kind is Arrived and self._given_up:
            record = event.record  # type: ignore[union-attr]
            if type(record) is Work and event.topic == OUTPUTS:  # type: ignore[union-attr]
                self._straggled(record)
        for effect in effects:
            if type(effect) is Send:
                if effect.topic == RESULTS:
                    self.take(effect.record, kind is Woke, now)  # type: ignore[arg-type]
                elif effect.topic == PLANS and type(effect.record) is Plan:
                    self._planned(effect.record, now)

    def begin(self, now: float) -> None:
        """Count from now on; what was before was warm-up."""
        self.since_s = self._planned_s = now
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.drops: dict[tuple[str, str], int] = {}  # by outcome and task
        self.latency = Quantiles()  # seconds; of answered, late and incomplete queries
        self.finished = 0  # items that ran at a task
        self.dropped = 0  # items that were dropped at one
        self.bad_items = 0
        self._leaves = {name: 0 for name in sorted(self._leaf_tasks)}  # in time
        self._rights = dict.fromkeys(self._leaves, 0.0)  # their accuracy in total
        self._given_up: dict[Origin, list[float]] = {}  # when, and how much came later
        self._device_s = 0.0  # until ``_planned_s``

    def take(self, answer: Answer, given_up: bool, now: float) -> None:
        """An answer; ``given_up``: egress waited no longer for the rest of it."""
        if answer.created_s < self.since_s:
            return
        outcome = outcome_of(answer)
        self.counts[outcome] += 1
        if outcome != ANSWERED:
            key = (outcome, answer.task)
            self.drops[key] = self.drops.get(key, 0) + 1
        if answer.outcome == ANSWERED:
            self.latency.add(answer.answered_s - answer.created_s)
        elif answer.outcome == REFUSED:
            self.bad_items += 1
        if given_up:
            self._forget(now)
            self._given_up[answer.origin] = [now, 0]
        self._ended(answer)

    def close(self) -> None:
        """No more will come: what is missing is lost."""
        self.bad_items += sum(not came for _, came in self._given_up.values())
        self._given_up.clear()

    # ------------------------------------------------------------------ the figures

    @property
    def stage_queries(self) -> int:
        """Items finished or dropped at tasks."""
        return self.finished + self.dropped

    @property
    def leaves(self) -> int:
        """Leaves in time."""
        return sum(self._leaves.values())

    @property
    def branch_violation(self) -> float | None:
        """Bad items among them and the leaves in time."""
        of = self.bad_items + self.leaves
        return self.bad_items / of if of else None

    @property
    def accuracy(self) -> float | None:
        """Mean path accuracy over leaves in time."""
        return sum(self._rights.values()) / self.leaves if self.leaves else None

    @property
    def accuracy_leaf_mean(self) -> float | None:
        """The same per leaf task first, then the mean of the tasks that have any."""
        means = [self._rights[task] / count for task, count in self._leaves.items() if count]
        return sum(means) / len(means) if means else None

    def devices_mean(self, until_s: float) -> float:
        """Devices that the plans in force used, on average over time."""
        seconds = until_s - self.since_s
        spent = self._device_s + self._devices * (until_s - self._planned_s)
        return spent / seconds if seconds > 0 else float(self._devices)

    # ------------------------------------------------------------------ items

    def _ended(self, answer: Answer) -> None:
        """Count how its branches ended."""
        in_time: list[tuple[Hop, ...]] = []
        late = 0
        for end, path in zip(answer.ends, answer.paths, strict=True):
            if end.outcome != ANSWERED:
                self._bad(end)
            elif end.task in self._leaf_tasks:
                if path[-1].finished_s > answer.deadline_s:
                    late += 1
                else:
                    in_time.append(path)
        if answer.late and not late and in_time:
            # It ended in time and came too late: the way to egress took what was left.
            in_time.remove(max(in_time, key=lambda path: path[-1].finished_s))
            late = 1
        self.bad_items += late
        for path in in_time:
            self._leaf(path)

    def _bad(self, end: End) -> None:
        self.bad_items += 1
        if end.outcome == DROPPED and end.task in self._tasks:
            self.dropped += 1

    def _leaf(self, path: tuple[Hop, ...]) -> None:
        way = tuple([(hop.task, hop.variant) for hop in path])
        accuracy = self._along.get(way)
        if accuracy is None:
            accuracy = along(tuple(map("/".join, way)), self._accuracies) or 0.0
            self._along[way] = accuracy
        task = path[-1].task
        self._leaves[task] += 1
        self._rights[task] += accuracy

    def _straggled(self, work: Work) -> None:
        came = self._given_up.get(work.origin)
        if came is None:
            return
        for item in work.items:
            if item.end is not None and (
                item.end.outcome != ANSWERED or item.end.task in self._leaf_tasks
            ):
                came[1] += 1
                self._bad(item.end)

    def _forget(self, now: float) -> None:
        """Give up on what was given up long ago."""
        while self._given_up:
            origin, (since_s, came) = next(iter(self._given_up.items()))  # the oldest
            if now - since_s < STRAGGLE_S:
                return
            self.bad_items += not came
            del self._given_up[origin]

    def _planned(self, plan: Plan, now: float) -> None:
        self._device_s += self._devices * max(0.0, now - self._planned_s)
        self._planned_s = now
        self._devices = len(plan.leases)
