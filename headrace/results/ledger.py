"""What did a run come to, by its answers and plans? Told alike of a live and a simulated one."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from headrace.demo.demo_report import steps
from headrace.fidelity.certificate import Figures
from operators.outcomes import LOST, cause_of
from schemas.effects import PLANS, QUERIES, RESULTS, Arrived, Effect, Event, Send, Woke
from schemas.pipeline import Pipeline
from schemas.records import ANSWERED, Answer, Plan, Query
from streams.observers.run_metrics import Account

NEVER_S = float("inf")


class Replicas:
    """How many workers the plans in force gave each variant, on average over time."""

    def __init__(self) -> None:
        self._since_s = NEVER_S
        self._plans: list[tuple[float, Mapping[str, int]]] = []  # (from when on, by "task/variant")

    def begin(self, now: float) -> None:
        """Count from now on, under the plan in force."""
        self._since_s = now
        del self._plans[:-1]

    def plan(self, plan: Plan) -> None:
        """A plan is in force from its issue on."""
        serving = Counter(f"{lease.task}/{lease.variant}" for lease in plan.leases)
        self._plans.append((plan.issued_s, serving))

    def mean(self, until_s: float) -> dict[str, float]:
        """By "task/variant", in the order of their names."""
        seconds, spent_s = until_s - self._since_s, dict[str, float]()
        for (from_s, serving), (to_s, _) in pairwise([*self._plans, (until_s, {})]):
            for_s = min(to_s, until_s) - max(from_s, self._since_s)
            for name, count in serving.items() if for_s > 0 else ():
                spent_s[name] = spent_s.get(name, 0.0) + count * for_s
        return {name: s / seconds for name, s in sorted(spent_s.items())} if seconds > 0 else {}


class Ledger:
    """Counts queries made from ``begin`` on, and devices from then on.

    As an observer of a simulation it begins by itself, ``warm_up_s`` behind the start of the
    arrivals, of which the first comes ``first_s`` after that start.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        accuracies: Mapping[str, float],
        *,
        first_s: float = 0.0,
        warm_up_s: float = 0.0,
    ) -> None:
        self.account = Account(pipeline, accuracies, NEVER_S)
        self.reasons: dict[str, int] = {}  # queries that ended badly, by the class of the reason
        self.steps_s: dict[str, float] = {}  # over all answered ones, by what they waited for
        self.start_s = NEVER_S  # of the arrivals
        self._replicas = Replicas()
        self._ahead_s = first_s
        self._warm_up_s = warm_up_s
        self._begun = False

    def begin(self, now: float) -> None:
        """Count from now on."""
        self._begun = True
        self.account.begin(now)
        self._replicas.begin(now)

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        """What a node of a simulation was told and asked for."""
        if not self._begun:
            self._await(event, now)
        for effect in effects:
            if type(effect) is Send:
                if effect.topic == RESULTS:
                    self.answer(effect.record, now)  # type: ignore[arg-type]
                elif effect.topic == PLANS and type(effect.record) is Plan:
                    self.plan(effect.record)

    def _await(self, event: Event, now: float) -> None:
        if type(event) is Arrived and event.topic == QUERIES and type(event.record) is Query:
            self.start_s = min(self.start_s, event.at_s - self._ahead_s)
        if now >= self.start_s + self._warm_up_s:
            self.begin(self.start_s + self._warm_up_s)

    def answer(self, answer: Answer, now: float) -> None:
        """A query has ended."""
        why = cause_of(answer)
        self.account.take(answer, why == "unfinished", now)
        if answer.created_s < self.account.since_s:
            return
        if why:
            self.reasons[why] = self.reasons.get(why, 0) + 1
            return
        for step, seconds in steps(answer):
            self.steps_s[step] = self.steps_s.get(step, 0.0) + seconds

    def plan(self, plan: Plan) -> None:
        """A plan is in force."""
        self._replicas.plan(plan)
        self.account.saw("", Woke(), (Send(PLANS, plan, 0),), plan.issued_s)

    def plans(self, plans: Iterable[Plan], since_s: float) -> None:
        """All plans of a run that is over; it begins to count at ``since_s``."""
        ordered = sorted(plans, key=lambda plan: plan.epoch)
        for plan in ordered:
            if plan.issued_s < since_s:
                self.plan(plan)
        self.begin(since_s)
        for plan in ordered:
            if plan.issued_s >= since_s:
                self.plan(plan)

    def figures(self, queries: int, until_s: float) -> Figures:
        """What the run came to; ``queries`` were made, the last one at ``until_s``."""
        account = self.account
        account.close()
        answered, lost = account.counts[ANSWERED], queries - sum(account.counts.values())
        account.bad_items += lost
        ended = {**self.reasons, **({LOST: lost} if lost else {})}
        at = account.latency.at
        return Figures(
            queries=queries,
            p50_ms=_ms(at(0.5)),
            p95_ms=_ms(at(0.95)),
            p99_ms=_ms(at(0.99)),
            branch_violation=account.branch_violation,
            violation=1 - answered / queries if queries else None,
            accuracy=account.accuracy,
            devices_mean=account.devices_mean(until_s),
            drops={why: count / queries for why, count in sorted(ended.items()) if queries},
            steps_ms={step: s / answered * 1e3 for step, s in self.steps_s.items()},
            replicas=self._replicas.mean(until_s),
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
