"""Fold records into the controller's state: reports, counts, plans on the topic, and commands."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from control.controller.command_queue import COMMAND_VALID_S, CommandQueue
from control.controller.control_state import RESTORING, ControlState
from control.controller.departures import Departures
from control.controller.membership import REPORT_AGE_S, ReportAges
from control.controller.plan_reach import PlanReach
from control.problem.plan_reasons import PlanReason, older_release, plan_lost, plan_missed
from schemas.effects import COMMANDS, Arrived, Counted, Effect, Heartbeats
from schemas.enumerations import PlanCause
from schemas.records import Command, CommandResult, Garbled, Plan, Report

if TYPE_CHECKING:
    from control.controller.rental import Rental

MERGE_S = 0.25
CONTEST_S = 1.0  # time until another controller's plan is replaced


class RecordIntake:
    """Folds records into the state. ``news``: a report changed an input of the next review.

    ``gone`` is called with the name of every node that is gone for good.
    """

    def __init__(
        self,
        state: ControlState,
        commands: CommandQueue,
        rental: "Rental | None" = None,
        gone: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._state, self._rental = state, rental
        self._commands = commands
        self._ages, self._reach = ReportAges(), PlanReach()
        self._departures, self._gone = Departures(), gone
        self._ready: list[PlanReason] = []  # reasons to be merged with further ones
        self._merge_s = 0.0
        self.news = False

    def ready(self, now: float) -> list[PlanReason]:
        """Remove and return the reasons about newly serving workers, merged: once no other worker
        loads, or ``MERGE_S`` after the first."""
        if now < self._merge_s and self._state.members.loading:
            return []
        ready, self._ready = self._ready, []
        return ready

    def arrived(self, event: Arrived, now: float) -> list[Effect]:
        """Process a record; return the answer if it is an unreadable command."""
        record = event.record
        if isinstance(record, Report):
            self._report(record, now)
        elif isinstance(record, Plan):
            self._seen(record, now)
        elif isinstance(record, CommandResult) and record.pipeline == self._state.pipeline.name:
            self._commands.answered(record.id)
        elif isinstance(record, Command):
            self._command(record, event, now)
        elif isinstance(record, Garbled) and event.topic == COMMANDS:
            return self._garbled(record, record.id or _name(event), event.at_s, now)
        return []

    def counted(self, event: Counted, now: float) -> None:
        """Process a count of the input topic, unless it is out of date."""
        if now - event.at_s <= REPORT_AGE_S:
            self._state.estimates.count(event)
            if self._rental is not None:
                self._rental.count(event)

    def heartbeats(self, event: Heartbeats, now: float) -> None:
        """Process heartbeats, the reports without news."""
        members, ages, own = self._state.members, self._ages, self._state.pipeline.name
        for beat in event.beats:
            if beat.pipeline == own and (dated := ages.dated_beat(beat, now)) is not None:
                members.beat(dated, now)
                members.listen(now)

    def _report(self, sent: Report, now: float) -> None:
        report = self._ages.dated(sent, now)
        if report is None:
            return
        state = self._state
        if report.pipeline != state.pipeline.name:
            state.hear_of(report.pipeline, now)
            return
        for gone in self._departures.heard(report.node, now):
            state.estimates.forget(gone)
            self._reach.forget(gone)
            self._gone(gone)
            if self._rental is not None:
                self._rental.forget(gone)
        state.estimates.observe(report)
        if self._rental is not None:
            self._rental.take(report)
        state.members.listen(now)
        if state.releases.observe(report, now):
            self.news = True
            state.reasons.append(older_release(report.node, state.releases.agreed))
        self._look_ahead(report, now)
        self._look_behind(report, now)
        if report.role == "worker":
            self._worker_news(state.members.observe(report, now), now)

    def _look_ahead(self, report: Report, now: float) -> None:
        """Supersede a plan that nodes follow but the plans topic has lost."""
        if self._state.history.lost(report.epoch, now):
            self._outbid(plan_lost(report.epoch))

    def _look_behind(self, report: Report, now: float) -> None:
        """Supersede a plan that a node has missed."""
        plan = self._state.plan
        if plan is not None and self._reach.missed(report, plan, now):
            self._outbid(plan_missed(report.node, plan.epoch))

    def _outbid(self, reason: PlanReason) -> None:
        """Request a successor of the plan in force, even an identical one."""
        self._state.contested = self.news = True
        self._state.reasons.append(reason)

    def _worker_news(self, news: PlanReason | None, now: float) -> None:
        if news is None:
            return
        self.news = True
        if news.cause == PlanCause.WORKER_SERVES:
            # Others that load may follow soon: make one plan for all.
            self._merge_s = self._merge_s if self._ready else now + MERGE_S
            self._ready.append(news)
        else:
            self._state.reasons.append(news)

    def _seen(self, plan: Plan, now: float) -> None:
        """Record a plan on the topic: from before a restart, our own, or another controller's."""
        state = self._state
        if plan.pipeline != state.pipeline.name or state.history.has(plan):
            return
        newest = plan.epoch >= state.history.epoch
        state.history.add(plan)
        if newest and state.phase.state is not RESTORING:
            # Delayed, or two controllers would supersede each other at the broker's full speed.
            state.contested = True
            state.replan_s = min(state.replan_s, now + CONTEST_S)

    def _command(self, command: Command, event: Arrived, now: float) -> None:
        # A command without a pipeline applies to pipelines that were up when it was sent.
        nameless = not command.pipeline and event.at_s >= self._state.started_s
        ours = nameless or command.pipeline == self._state.pipeline.name
        if ours and now - event.at_s <= COMMAND_VALID_S:
            dated = replace(command, id=command.id or _name(event), issued_s=event.at_s)
            self._commands.accept(dated)

    def _garbled(self, garbled: Garbled, name: str, at_s: float, now: float) -> list[Effect]:
        expired = now - at_s > COMMAND_VALID_S
        if expired or not self._commands.know(name):
            return []
        command = Command(id=name, pipeline=self._state.pipeline.name, action="")
        return [self._state.answer(command, False, garbled.reason, now)]


def _name(event: Arrived) -> str:
    """Return an id for a command without one."""
    return f"{event.topic}@{event.offset}"
