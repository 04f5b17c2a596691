"""The history of a pipeline: figures per second, queues, and events on a time line.

A fold over records and time. ``reach`` samples every whole second that has passed, so that records
read at the start (the last minutes) and live records give the same history.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Any

from headrace.client.give_command import variants
from headrace.status.snapshot import Board, Snapshot
from schemas.records import CommandResult, Plan, Report

KEPT_S = 600.0  # the page shows ten minutes
GONE_AFTER_S = 2.0  # a node that is silent for longer is an event on the time line
EVENTS = 200
PLANS = 1000  # a plan a second at most, and the one in force before the time shown

# The figures of a row, all of ``Snapshot``, behind its time.
FIGURES = (
    "arrived_qps", "answered_qps", "late_qps", "dropped_qps", "failed_qps", "refused_qps",
    "p50_ms", "p95_ms", "p99_ms", "slo_ms", "demand_qps", "capacity_qps", "busy", "workers",
    "usd_per_h",
)  # fmt: skip


@dataclass(slots=True)
class PipelineHistory:
    """The history of one pipeline, fed with records in the order of their times."""

    board: Board
    rates: deque[list[Any]] = field(default_factory=deque)  # time, then FIGURES
    queues: deque[list[Any]] = field(default_factory=deque)  # time, items by "task/slot" above 0
    plans: deque[tuple[int, Plan]] = field(default_factory=lambda: deque(maxlen=PLANS))  # number
    events: deque[list[Any]] = field(default_factory=lambda: deque(maxlen=EVENTS))  # number, event
    waiting: Mapping[tuple[str, int], int] | None = None  # records on the broker by task and slot
    _events: int = 0
    _plans: int = 0
    _alive: set[str] = field(default_factory=set)
    _sampled_s: float = 0.0

    def see(self, records: Iterable[object], now: float) -> None:
        """Add records; seconds are sampled as the reports' times pass, never beyond ``now``."""
        for record in records:
            if isinstance(record, Report) and record.pipeline == self.board.pipeline:
                self._sample_to(min(record.sent_s, now))
            self.board.see((record,))
            if isinstance(record, Plan) and record.pipeline == self.board.pipeline:
                self._plan(record)
            elif isinstance(record, CommandResult) and record.pipeline == self.board.pipeline:
                text = f"{record.action}: {record.message}"
                self._event("command", record.finished_s, record.id, text, good=record.ok)

    def reach(self, now: float) -> None:
        """Sample every whole second up to ``now`` that has not been sampled. The rows begin anew
        after the clock was set back by more than ``GONE_AFTER_S``."""
        if now < self._sampled_s - GONE_AFTER_S:
            self.rates.clear()
            self.queues.clear()
            self._sampled_s = 0.0
        self._sample_to(now)

    def _sample_to(self, now: float) -> None:
        if not self._sampled_s or now - self._sampled_s > KEPT_S:
            self._sampled_s = floor(now)
        while self._sampled_s + 1 <= now:
            self._sampled_s += 1
            self._sample(self._sampled_s)

    def _plan(self, plan: Plan) -> None:
        last = self.plans[-1][1] if self.plans else None
        if plan.supersedes(last) and plan != last:  # the same plan may come twice
            self._plans += 1
            self.plans.append((self._plans, plan))

    def _sample(self, at_s: float) -> None:
        self.board.forget(at_s - KEPT_S)
        snapshot = self.board.snapshot(at_s)
        self._nodes(at_s)
        if snapshot.nodes or self.rates:
            self.rates.append([at_s, *_figures(snapshot)])
            self.queues.append([at_s, self._queued(at_s)])
        for rows in (self.rates, self.queues):
            while rows and rows[0][0] <= at_s - KEPT_S:
                rows.popleft()

    def _queued(self, at_s: float) -> dict[str, int]:
        """Return the backlog per slot: records on the broker or, in the past and before the
        broker's first answer, the items that workers hold."""
        if self.waiting is not None:
            return {f"{task}:{slot}": n for (task, slot), n in self.waiting.items() if n}
        return {
            f"{slot.task}:{slot.slot}": slot.queued
            for report in self.board.reports().values()
            for slot in report.slots
            if slot.queued and at_s - report.sent_s <= GONE_AFTER_S
        }

    def _nodes(self, at_s: float) -> None:
        """Note the nodes that fell silent, and those that report (again)."""
        reports, first = self.board.reports(), not self.rates
        alive = {name for name, r in reports.items() if at_s - r.sent_s <= GONE_AFTER_S}
        for name in sorted(self._alive - alive):
            self._event("silent", at_s, name, f"{name} is silent", good=False)
        for name in sorted(alive - self._alive if not first else ()):
            state = f"{name} reports: {reports[name].state}"
            self._event("reports", at_s, name, state, good=True)
        self._alive = alive

    def gone(self) -> list[str]:
        """Return the nodes that reported within the time shown and are silent now."""
        known = self.board.reports()
        return [name for name, r in known.items() if self._sampled_s - r.sent_s > GONE_AFTER_S]

    def _event(self, kind: str, at_s: float, who: str, text: str, *, good: bool) -> None:
        self._events += 1
        event = {"kind": kind, "at_s": at_s, "who": who, "text": text, "good": good}
        self.events.append([self._events, event])

    def plan_rows(self) -> list[list[Any]]:
        """Return the plans shown, each after its number, oldest first: those issued within the time
        kept and the one that was in force before them. A purge restarts epochs, not numbers."""
        since_s = self._sampled_s - KEPT_S
        newer = [each for each in self.plans if each[1].issued_s >= since_s]
        older = [each for each in self.plans if each[1].issued_s < since_s][-1:]
        return [[number, _plan_row(plan)] for number, plan in (*older, *newer)]


def _figures(snapshot: Snapshot) -> list[float | None]:
    """Return the figures of a row, rounded: a viewer needs no 17 digits."""
    return [_rounded(getattr(snapshot, name)) for name in FIGURES]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _plan_row(plan: Plan) -> dict[str, Any]:
    return {
        "epoch": plan.epoch,
        "issued_s": plan.issued_s,
        "policy": plan.settings.policy,
        "reason": plan.reason,
        "causes": plan.causes,
        "feasible": plan.feasible,
        "binding": plan.binding,
        "demand_qps": round(plan.demand_qps, 2),
        "capacity_qps": _rounded(plan.capacity_qps),
        "variants": variants(plan),
    }
