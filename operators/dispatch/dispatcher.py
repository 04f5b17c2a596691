"""The dispatcher: hold queries in a central queue and send each to a free device.

The root task's dispatcher is a component of ingress: ingress is the only sender to the root task,
and its input offsets persist the queue (an unsent query is uncommitted and read again after a
restart). An inner task's dispatcher is a component of its own node (task_dispatcher.py). The rule
(control/policies/kairos/dispatch_rules.py) runs once per drain of arrivals.

A device that is predicted to be free within the lead gets its next query ahead of time. Otherwise
it would idle for two hops, between its completion and the next query. It gets one query ahead, or
as many short ones as it serves within the lead.

Several dispatchers of a task divide the devices of each type among themselves (device_division.py).
A dispatcher without a device gives its queries up at their deadlines. A type that was too slow for
every waiting query is reset to its profile after ``AGAIN_S``.
"""

from bisect import insort
from collections.abc import Iterable
from math import nextafter

import numpy as np

from control.policies import policy_named, spec_of
from control.policies.kairos.dispatch_options import (
    LATE,
    LEARN,
    SERVE,
    THRESHOLD,
)
from control.policies.kairos.dispatch_rules import (
    DispatchOptions,
    Round,
    Rule,
    first_come,
    match,
)
from control.policies.kairos.latency_learning import LatencyModel
from control.policies.kairos.matching import MatchingWeights, Vector, matched
from control.problem.lazy_references import object_named
from operators.dispatch.device_costs import DeviceCosts
from operators.dispatch.device_division import own_workers
from operators.dispatch.dispatch_profile import DispatchProfile, Predictions
from operators.dispatch.dispatch_queue import (
    AGAIN_S,
    ALONE,
    MOST_SENT,
    OVERDUE,
    DispatchedDevice,
    DispatchedQuery,
    Dropped,
    Part,
    Pick,
    Waiting,
    deadline_s,
    oldest,
)
from operators.dispatch.round_trip import RoundTrip
from schemas.pipeline import Pipeline, Policy, Task
from schemas.records import ANSWERED, Completion, Plan, Selection, Work
from schemas.variant_id import variant_id

TICK_S = 1e-9
_FOREVER = float("inf")


class Dispatcher:
    """Central queue of a task's queries.

    Without ``task`` it serves the root task, and is active under policies that dispatch. A
    dispatcher of an inner task is always active, under the policy that its task names.

    Invariant: a device gets a query only while its queries from this dispatcher are predicted to
    end within the lead and number fewer than ``MOST_SENT``; those of a lost device count too.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        profile: DispatchProfile,
        part: Part = ALONE,
        round_trip_s: float = 0.0,
        task: Task | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._task = task or pipeline.root
        self._profile = profile
        self._part = part
        self._policy: Policy | None = None
        self._rule: Rule = first_come
        self._options = DispatchOptions(MatchingWeights(pipeline.slo_s))
        self._serves_late = self._withholds = False
        self._waiting: list[Waiting] = []  # by deadline, ties in order of arrival
        self._devices: list[DispatchedDevice] = []
        self._by_slot: dict[int, DispatchedDevice] = {}
        self._kinds: tuple[int, ...] = ()  # types with a device
        self._factors: Vector = np.ones(0)
        self._learned = LatencyModel(profile.types, profile.mean_s)
        self._costs = DeviceCosts(profile, self._learned)
        self._predictions = Predictions(profile, self._learned)
        self._trip = RoundTrip(round_trip_s)
        # Types that were too slow for every waiting query: since when no query of theirs has run.
        self._unused: dict[int, float] = {}

    @property
    def active(self) -> bool:
        """Whether the plan in force dispatches queries."""
        return self._policy is not None

    @property
    def waiting(self) -> int:
        """The number of queued queries."""
        return len(self._waiting)

    def remaining_s(self, now: float) -> dict[int, float]:
        """Return the predicted seconds until each busy device has finished, by slot."""
        return {each.slot: max(each.free_s - now, 0.0) for each in self._devices if each.sent}

    def __bool__(self) -> bool:
        """Return whether the plan has a device."""
        return bool(self._devices)

    # ------------------------------------------------------------------ plans

    def change(self, plan: Plan, now: float) -> list[Work]:
        """Follow a plan; return the queued queries if the plan no longer dispatches."""
        policy = policy_named(self._pipeline, self._task.dispatch or plan.settings.policy)
        spec = spec_of(policy.kind) if policy is not None else None
        if policy is None or spec is None or not spec.dispatch:
            self._policy = None
            left, self._waiting = [each.work for each in self._waiting], []
            return left
        if self._policy is None:
            matched(np.zeros((2, 2)))  # warm up the solver before the first query arrives
        self._policy = policy
        self._rule = object_named(spec.dispatch)
        self._serves_late = LATE.of(policy) == SERVE
        self._withholds = spec.withholds and not self._serves_late
        self._staff(plan)
        slo_s = plan.settings.slo_s
        self._costs.change(policy, [device.kind for device in self._devices], slo_s)
        threshold = THRESHOLD.of(policy) or self._costs.threshold()
        self._options = DispatchOptions.of(policy, slo_s, threshold)
        for each in self._waiting:
            each.held = -1
            self._predict(each)
        return []

    def take(self, selection: Selection) -> None:
        """Ignore the tables of a policy: the rules of this dispatcher have none."""

    def _staff(self, plan: Plan) -> None:
        """Adopt the plan's devices; queries in flight move with their slots."""
        sent = {d.slot: d for d in self._devices}
        types, kind_of = self._profile.types, self._profile.kind_of
        leases = [x for x in plan.leases if x.task == self._task.name and x.open_slot >= 0]
        kinds = {x.worker: kind_of(x.type, x.variant) for x in leases}
        own = own_workers({x: kind for x, kind in kinds.items() if kind in types}, self._part)
        devices = [
            DispatchedDevice(x, types.index(kinds[x.worker])) for x in leases if x.worker in own
        ]
        for device in devices:
            for slot in device.slots:
                before = sent.get(slot)
                if before is not None:
                    device.sent += [each for each in before.sent if each not in device.sent]
                    device.free_s = max(device.free_s, before.free_s)
        self._devices = devices
        self._by_slot = {slot: device for device in devices for slot in device.slots}
        self._kinds = tuple(sorted({device.kind for device in devices}))
        self._factors = np.array([self._learned.factor(d.worker) for d in devices])

    # ------------------------------------------------------------------ queries

    def add(self, work: Work, place: int = -1) -> None:
        """Queue a query, read from a record at offset ``place``."""
        self._costs.add(work.size)
        waiting = Waiting(work, place)
        self._predict(waiting)
        insort(self._waiting, waiting, key=deadline_s)

    def recall(self, sizes: Iterable[int]) -> None:
        """Take the sizes of queries that earlier incarnations dispatched, oldest first."""
        self._costs.recall(sizes)

    def oldest(self, partition: int) -> int | None:
        """Return the lowest queued offset of an input partition, or None."""
        return oldest(self._waiting, partition)

    def completed(self, completion: Completion, now: float) -> None:
        """Record that a device finished or dropped a query.

        Completions of other dispatchers' queries only update the latency model.
        """
        ran = completion.outcome == ANSWERED
        policy = self._policy
        kind = self._profile.kind_of(completion.type, variant_id(completion.setting).variant)
        if ran and kind in self._profile.types:
            self._unused.pop(self._profile.types.index(kind), None)
            if policy is None or LEARN.of(policy):
                size = self._profile.bounded(completion.size)
                self._learned.observe(kind, size, completion.run_s, completion.worker)
                self._costs.learned()
        device = self._by_slot.get(completion.slot)
        if device is None:
            return
        sent = device.ended(completion.origin)
        if sent is None:
            return
        if ran and not sent.ahead:
            self._trip.measured(now - sent.sent_s - completion.queued_s - completion.run_s)
        device.free_s = self._trip.free_s(now, device.sent)
        at = self._devices.index(device)
        self._factors[at] = self._learned.factor(device.worker)

    # ------------------------------------------------------------------ decisions

    def decide(self, now: float) -> tuple[list[Pick], list[Dropped]]:
        """Return the queries to send now with their slots, and those that no device can finish in
        time."""
        self._try_again(now)
        dropped = self._give_up(now)
        picks, again = self._matched(now)
        while again:
            more, again = self._matched(now)
            picks += more
        # Give up queries whose latest start is now: no wake-up would follow for them.
        return picks, [*dropped, *self._give_up(nextafter(now, _FOREVER))]

    def _matched(self, now: float) -> tuple[list[Pick], bool]:
        """Send at most one query to each free device; return those that were sent, and whether
        there may be more to send.

        There is not if the rule saw every query, none was withheld, and no device that was sent one
        is still free: a rule uses the other devices as well as it can, and a device that is busy
        for longer makes none of them a better choice. Only a query that is late on every device,
        which costs the same on each, might go elsewhere.
        """
        if not self._waiting or not self._devices or self._policy is None:
            return [], False
        lead_s = self._lead_s
        remaining_s = [self._remaining_s(device, now, lead_s) for device in self._devices]
        if min(remaining_s) > lead_s:
            return [], False
        queue = self._in_order(now)
        again = len(queue) < len(self._waiting)
        round_ = self._round(queue, remaining_s, lead_s, now)
        picks: list[Pick] = []
        taken: set[Waiting] = set()
        for i, j in self._rule(round_, self._options):
            waiting, device = queue[i], self._devices[j]
            if self._misses(waiting, device, round_.remaining_s[j], now):
                again = True
                continue
            taken.add(waiting)
            self._send(waiting, device, now)
            picks.append((waiting, device.slot))
            again = again or self._remaining_s(device, now, lead_s) <= lead_s
        for waiting, held in zip(queue, round_.held, strict=True):
            waiting.held = held
        if taken:
            self._waiting = [each for each in self._waiting if each not in taken]
        return picks, again and bool(picks)

    def next_s(self, now: float) -> float:
        """Return the time of the next decision if nothing arrives: a device becomes free within
        the lead, or a query can no longer meet its deadline."""
        if not self._waiting or self._policy is None:
            return _FOREVER
        lead_s = self._lead_s
        ahead = [d.free_s - lead_s for d in self._devices if self._has_room(d)] if lead_s else []
        due = [at_s for at_s in ahead if at_s > now]
        return min(
            [*due, *[w.give_up_s for w in self._waiting if w.give_up_s > now]], default=_FOREVER
        )

    @property
    def _lead_s(self) -> float:
        assert self._policy is not None
        return self._trip.lead_s(self._policy)

    def _in_order(self, now: float) -> list[Waiting]:
        """Return the queries for the rule, in the order in which they are served.

        Queries that may be late on every device come last. In overload the earliest deadline is
        always about to expire: a rule that serves by deadline alone would serve only such queries,
        nearly half of them late. The matching needs no such order, as it weighs lateness by a cost.
        """
        if self._rule is match:
            return self._waiting[: self._options.considered * len(self._devices)]
        if self._serves_late:
            return self._waiting
        return sorted(self._waiting, key=lambda each: now > each.yield_s)

    def _round(
        self, waiting: list[Waiting], remaining_s: list[float], lead_s: float, now: float
    ) -> Round:
        assert self._costs.table is not None
        slo_s = self._options.weights.slo_s
        hop_s = self._trip.mean_s / 2
        answered_s = now + hop_s  # an answer that leaves now reaches egress
        return Round(
            sizes=[w.work.size for w in waiting],
            # Counted back from the deadline, so that the SLO class with less time left is more
            # urgent.
            wait_s=[now + slo_s - w.work.deadline_s for w in waiting],
            slack_s=[w.work.deadline_s - answered_s for w in waiting],
            latency_s=[w.latency_s for w in waiting],
            worst_s=[w.worst_s for w in waiting],
            held=[w.held for w in waiting],
            remaining_s=remaining_s,
            factors=self._factors,
            devices=self._costs.table,
            lead_s=lead_s,
            hop_s=hop_s,
        )

    def _remaining_s(self, device: DispatchedDevice, now: float, lead_s: float) -> float:
        """Return R_j; a device with ``MOST_SENT`` queries, or an overdue one, is not free."""
        if not device.sent:
            return 0.0
        left_s = max(device.free_s - now, 0.0)
        if self._has_room(device) and lead_s and not self._overdue(device, now):
            return left_s
        if not left_s:
            self._forget_lost(device, now)
        return max(left_s, lead_s + TICK_S) if device.sent else 0.0

    def _has_room(self, device: DispatchedDevice) -> bool:
        return 0 < len(device.sent) < MOST_SENT

    def _overdue(self, device: DispatchedDevice, now: float) -> bool:
        """Return whether the device is so far past its prediction that it may be lost."""
        first = device.sent[0]
        return now > device.free_s + (OVERDUE - 1) * first.predicted_s

    def _forget_lost(self, device: DispatchedDevice, now: float) -> None:
        """Forget a device's queries whose deadline and grace have passed."""
        grace_s = self._pipeline.grace_s
        device.sent = [each for each in device.sent if now <= each.deadline_s + grace_s]

    def _send(self, waiting: Waiting, device: DispatchedDevice, now: float) -> None:
        predicted_s = waiting.latency_s[device.kind] * self._learned.factor(device.worker)
        origin, ahead = waiting.work.origin, bool(device.sent)
        device.free_s = self._trip.ends_s(now, predicted_s, device.free_s if ahead else 0.0)
        device.sent.append(
            DispatchedQuery(origin, predicted_s, now, waiting.work.deadline_s, ahead)
        )

    def _misses(
        self, waiting: Waiting, device: DispatchedDevice, remaining_s: float, now: float
    ) -> bool:
        if not self._withholds:
            return False
        hop_s = self._trip.usual_s / 2  # to the device, unless it is busy; from it to egress
        ends_s = now + max(remaining_s, hop_s) + waiting.latency_s[device.kind] + hop_s
        if ends_s <= waiting.work.deadline_s:
            return False
        self._unused.setdefault(device.kind, now)
        return True

    def _try_again(self, now: float) -> None:
        """Reset types that were too slow for longer than ``AGAIN_S`` to their profile."""
        due = [kind for kind, since_s in self._unused.items() if now - since_s > AGAIN_S]
        for kind in due:
            del self._unused[kind]
            self._predictions.forget(kind)
        if not due:
            return
        if set(due) >= set(self._kinds):
            self._trip.forget()
        for each in self._waiting:
            self._predict(each)

    def _give_up(self, now: float) -> list[Dropped]:
        assert self._policy is not None
        if self._serves_late and self._kinds:
            return []
        late = [(w, now - w.give_up_s) for w in self._waiting if w.give_up_s < now]
        if late:
            self._waiting = [w for w in self._waiting if w.give_up_s >= now]
            self._unused = dict.fromkeys(self._kinds, now) | self._unused
        return late

    def _predict(self, waiting: Waiting) -> None:
        """Predict a query's latency on every type, and its latest start on the plan's types."""
        waiting.latency_s, waiting.worst_s = self._predictions.of(waiting.work.size)
        waiting.give_up_s = waiting.yield_s = waiting.work.deadline_s
        if self._kinds:
            # One hop for the query to its device, and one for its answer to egress.
            left_s = waiting.work.deadline_s - self._trip.usual_s
            waiting.give_up_s = left_s - min([waiting.latency_s[kind] for kind in self._kinds])
            waiting.yield_s = left_s - min([waiting.worst_s[kind] for kind in self._kinds])
