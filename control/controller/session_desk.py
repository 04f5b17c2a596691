"""The controller's part for sessions: commands, searches, schedules, the query plans in every plan.

Sessions are restored from their compacted topic, their query plans from the plan in force. If the
policy does not plan sessions, plans carry no query plans and sessions wait. A pipeline without
tiers has ``NoSessions`` in place of a desk.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from control.controller.commands import CommandError, unexpired
from control.controller.departures import Departures
from control.controller.membership import ReportAges
from control.controller.node_releases import HOLD_S
from control.controller.session_commands import (
    CLOSE,
    OPEN,
    REPLAN,
    SET_SLO,
    asked_session,
    check_search,
    named_session,
    with_objectives,
)
from control.controller.session_schedules import SessionSchedules
from control.estimation.operator_paces import OperatorPaces
from control.policies import plans_sessions, policy_named, spec_of
from control.policies.compass.session_options import AGEING, IDLE
from control.problem.lazy_references import object_named
from control.problem.plan_reasons import SESSIONS, made_for
from control.problem.sample_sets import own_set
from control.problem.seats import open_seats
from control.problem.session_space import SessionSpace
from control.sessions.session_book import LoadFailures, SessionBook
from control.sessions.session_health import SessionHealth
from schemas.count_names import UNLOADABLE, count_name
from schemas.effects import PROFILE_RESULTS, Effect, Failed, Solved
from schemas.enumerations import SessionState
from schemas.pipeline import Pipeline
from schemas.records import Command, Plan, ProfileResult, Record, Report, Session, SessionChoice
from schemas.release import WITH_SESSIONS

if TYPE_CHECKING:
    from control.controller.session_searches import SessionSearches

Answered = tuple[Command, bool, str]


class SessionDesk:
    """The sessions of a pipeline.

    ``changed``: the known state has changed since the last review.
    """

    results = (PROFILE_RESULTS,)  # topics to be read besides those of every controller

    def __init__(self, pipeline: Pipeline, space: SessionSpace) -> None:
        self._pipeline = pipeline
        self._space = space
        self._book = SessionBook(pipeline, space)
        # Imports SciPy's functions, which pipelines without sessions do not need.
        searches = object_named("control.controller.session_searches:SessionSearches")
        self._searches: SessionSearches = searches(pipeline.name, space)
        self._schedules = SessionSchedules(space)
        self._health = SessionHealth(space, pipeline.longest_deadline_s + pipeline.grace_s)
        self._paces = OperatorPaces(space)
        self._held: dict[str, frozenset[str]] = {}  # by worker
        self._failures: dict[str, LoadFailures] = {}  # by worker
        self._ages, self._departures = ReportAges(), Departures()
        self._started_s = float("-inf")
        self.changed = False

    # ------------------------------------------------------------------ records

    def take(self, record: Record, now: float) -> None:
        """Record a session from before a restart, a worker's report, or a profile result."""
        if isinstance(record, Report):
            if record.pipeline == self._pipeline.name:
                self._heard(record, now)
        elif isinstance(record, Session) and record.pipeline == self._pipeline.name:
            self._book.restore(record)
        elif isinstance(record, ProfileResult):
            self._searches.take(record)

    def start(self, plan: Plan | None, now: float) -> None:
        """Resume the query plans of the plan in force; None: there is none, or it is lost."""
        self._started_s = now
        self._book.resume(() if plan is None else plan.sessions, now)

    def solved(self, event: Solved | Failed, now: float) -> bool:
        """Handle the end of a search's step or of a schedule; return False if it is neither."""
        if self._searches.owns(event.job):
            self._searches.solved(event, now)
        elif self._schedules.owns(event.job):
            self._schedules.solved(event, self._book, now)
            self.changed = True
        else:
            return False
        return True

    def planning(self, policy: str, now: float) -> list[Effect]:
        """Return the steps, requests for profiles and schedules that sessions need now."""
        named = policy_named(self._pipeline, policy)
        if named is None or not spec_of(named.kind).sessions:
            return []
        self._book.ageing_s = AGEING.of(named)
        self._watch(now)
        idle_s = IDLE.of(named)
        for name in self._health.idle(idle_s, now) if idle_s else ():
            self._close(name, now)
            self.changed = True
        waiting = self._book.unplanned()
        self._searches.begin(waiting, self._health, self._paces, named, now)
        effects = self._searches.advance(waiting, now)
        self._found(waiting, now)
        return [*effects, *self._schedules.begin(self._book, named, now)]

    def _close(self, name: str, now: float) -> None:
        self._book.close(name, now)
        self._health.forget(name)

    def _found(self, waiting: Sequence[Session], now: float) -> None:
        """Assign the first plans of running searches and all plans of ended ones to sessions.

        A session that is replanned because its accuracy has dropped does not wait for a plan that
        complies: the first plan that is certainly more accurate serves meanwhile.
        """
        book, searches = self._book, self._searches
        for name, state in searches.states.items():
            if not book.planless(name):
                continue
            book.searched(name, state, now)
            if plans := searches.plans(name) or self._better(name, searches.nearest(name)):
                book.spent(name, searches.figures(name, now))
                book.first_planned(name, plans, now)
                self.changed = True
        unplanned = {each.id for each in waiting}
        ended = searches.ended()
        for end in ended:
            if end.session not in unplanned:
                continue  # closed meanwhile
            if book.planless(end.session):
                book.searched(end.session, end.reason, now)
            book.spent(end.session, end.figures)
            plans = end.plans or self._better(end.session, end.nearest)
            book.planned(end.session, plans, now, end.reason)
            self.changed = True
        if ended:
            searches.forget({each.samples for each in book.sessions})

    def _better(
        self, name: str, nearest: tuple[SessionChoice, float] | None
    ) -> tuple[SessionChoice, ...]:
        """Return the nearest plan of a search without a result, if it is certainly more accurate
        than the previous plan of a session that is replanned for its accuracy."""
        if nearest is None or not self._health.helps(name, nearest[1]):
            return ()
        return (nearest[0],)

    def _watch(self, now: float) -> None:
        """Replan the sessions whose observed health raises an alarm."""
        serving = self._book.serving
        self._health.serves(serving, now)
        self._paces.serves(serving, self._book.running, self._book.session, now)
        for name in serving:
            session = self._book.session(name)
            alarm = self._health.alarm(session, now, self._paces.extra_s(session, now))
            if alarm is None:
                continue
            changes: dict[str, str | float] = {
                "cause": alarm.reason,
                "detect_s": max(0.0, now - alarm.since_s),
            }
            if not alarm.drift.reprices:
                changes["samples"] = own_set(self._space.truth, name, alarm.since_s, now)
            self._book.replan(name, now, **changes)

    def _heard(self, sent: Report, now: float) -> None:
        report = self._ages.dated(sent, now)
        if report is None:
            return
        for gone in self._departures.heard(report.node, now):
            self._held.pop(gone, None)
            self._failures.pop(gone, None)
            self._health.forget_node(gone)
            self._paces.forget_node(gone)
        self._health.take(report, now)
        self._paces.take(report, now)
        if report.role != "worker":
            return
        held, failures = frozenset(report.held), _failures(report)
        known = (
            self._held.get(report.node, frozenset()),
            self._failures.get(report.node, LoadFailures()),
        )
        if (held, failures) != known:
            self._held[report.node], self._failures[report.node] = held, failures
            self.changed = True

    # ------------------------------------------------------------------ commands

    def carry_out(
        self, given: Iterable[Command], policy: str, reads: int, now: float
    ) -> list[Answered]:
        """Carry out commands on sessions, which need no solve; return their results.

        ``policy`` is the name of the policy in force; ``reads`` is the schema release that every
        node reads.
        """
        return [self._result(command, policy, reads, now) for command in given]

    def _result(self, command: Command, policy: str, reads: int, now: float) -> Answered:
        try:
            message = self.done_before(command, now)
            if not message:
                unexpired(command, now)
                message = self._carried_out(command, policy, reads, now)
        except CommandError as error:
            return command, False, str(error)
        self.changed = True
        return command, True, message

    def done_before(self, command: Command, now: float) -> str:
        """Return the message of a command that the control app before this one carried out, and
        ended before it could write the result; "" if it did not."""
        name = command.arguments.get("session", "")
        if name not in self._book:
            return ""
        session = self._book.session(name)

        def before_start(at_s: float) -> bool:
            return command.issued_s <= at_s < self._started_s

        if command.action == OPEN and before_start(session.opened_s):
            with suppress(CommandError):
                asked = asked_session(command.arguments, self._pipeline, self._space, now)
                return _opened(name) if _objectives(session) == _objectives(asked) else ""
        if not before_start(session.changed_s):
            return ""
        if command.action == REPLAN and self._book.planless(name):
            return _replanned(name)
        if command.action == CLOSE and session.state is SessionState.CLOSING:
            return _closed(name)
        return ""

    def _carried_out(self, command: Command, policy: str, reads: int, now: float) -> str:
        name = named_session(command.action, command.arguments)
        if command.action == OPEN:
            if not plans_sessions(self._pipeline, policy):
                raise CommandError(
                    f"the policy {policy!r} plans no sessions; apply one of kind compass first: "
                    "`headrace policy apply`"
                )
            if reads < WITH_SESSIONS:
                raise CommandError(
                    "a node of an older release runs, which knows no sessions; upgrade or end it, "
                    f"and open the session {HOLD_S:g} s later"
                )
            return self._open(name, command, now)
        if name not in self._book:
            known = ", ".join(each.id for each in self._book.sessions[:10]) or "none"
            raise CommandError(f"there is no session {name!r}; open are: {known}")
        if command.action == CLOSE:
            self._close(name, now)
            return _closed(name)
        if command.action == SET_SLO:
            return self._change(command, now)
        return self._replan(name, now)

    def _replan(self, name: str, now: float) -> str:
        session = self._book.session(name)
        _still_open(session)
        if not session.samples:
            raise CommandError(
                f"session {name!r} cannot be planned again: its plan was made by hand"
            )
        self._health.forget(name)
        if not self._book.planless(name):  # else a plan is being searched already
            self._book.replan(name, now, cause="a command", detect_s=0.0)
        return _replanned(name)

    def _change(self, command: Command, now: float) -> str:
        session = self._book.session(command.arguments["session"])
        _still_open(session)
        changed = with_objectives(session, command.arguments)
        if not self._book.planless(session.id):  # else it may still serve by the inaccurate plan
            self._health.objectives_changed(session.id)
        why = self._book.change_objectives(changed, now)
        done = f"objectives of session {session.id!r} changed"
        return f"{done}; searching for a plan: {why}" if why else f"{done}; it keeps its plan"

    def _open(self, name: str, command: Command, now: float) -> str:
        asked = asked_session(command.arguments, self._pipeline, self._space, now)
        if name in self._book:
            raise CommandError(f"session {name!r} is open already; close it or name another one")
        if not asked.plans:
            check_search(asked, self._space, now)
        self._book.open(asked, now)
        return _opened(name)

    # ------------------------------------------------------------------ plans

    def due(self, now: float) -> bool:
        """Return whether the query plans may have changed since the last plan."""
        return self.changed or now >= self._book.next_s()

    def stamped(self, plan: Plan, devices: Mapping[str, str], now: float) -> Plan:
        """Return a plan with the query plans that fit its leases.

        ``devices`` is by worker; if any is "", a worker that has not reported, the query plans are
        not judged.
        """
        if not plans_sessions(self._pipeline, plan.settings.policy):
            self._book.drained(now)
            return _without_sessions(plan)
        if all(devices.values()):
            self.changed = False
            seats = open_seats(plan.leases, devices)
            self._book.review(seats, self._held, self._failures, now)
        return replace(plan, sessions=self._book.plans)

    def moved(self, plan: Plan | None, devices: Mapping[str, str], now: float) -> Plan | None:
        """Return the plan in force with other query plans; None if they are the same."""
        if plan is None or not self.due(now):
            return None
        made = self.stamped(plan, devices, now)
        if made.sessions == plan.sessions:
            return None
        return made_for(made, (SESSIONS,))

    def news(self) -> list[Effect]:
        """Return the records of sessions that have changed."""
        return self._book.news()

    def deletions(self) -> list[Effect]:
        """Return the deletions of closed sessions, to be written after the results of commands."""
        return self._book.deletions()


class NoSessions:
    """The desk of a pipeline without tiers: it refuses every command on sessions."""

    results = ()
    changed = False

    def __init__(self, pipeline: str) -> None:
        self._refusal = (
            f"{pipeline} has no sessions: its cluster has no tiers; add cluster.tiers to the "
            "pipeline file"
        )

    def take(self, record: Record, now: float) -> None:
        """Ignore a record."""

    def start(self, plan: Plan | None, now: float) -> None:
        """Resume no query plans."""

    def solved(self, event: Solved | Failed, now: float) -> bool:
        """Return False: no search and no schedule is solved."""
        return False

    def planning(self, policy: str, now: float) -> list[Effect]:
        """Return no effects."""
        return []

    def carry_out(
        self, given: Iterable[Command], policy: str, reads: int, now: float
    ) -> list[Answered]:
        """Refuse commands on sessions."""
        return [(command, False, self._refusal) for command in given]

    def done_before(self, command: Command, now: float) -> str:
        """Return "": no command was carried out before."""
        return ""

    def stamped(self, plan: Plan, devices: Mapping[str, str], now: float) -> Plan:
        """Return a plan without the query plans of a file that had tiers."""
        return _without_sessions(plan)

    def moved(self, plan: Plan | None, devices: Mapping[str, str], now: float) -> Plan | None:
        """Return None: there are no query plans to change."""

    def news(self) -> list[Effect]:
        """Return no records."""
        return []

    def deletions(self) -> list[Effect]:
        """Return no deletions."""
        return []


def desk_of(pipeline: Pipeline, space: SessionSpace | None) -> SessionDesk | NoSessions:
    """Return the desk of a pipeline; ``space`` is None without tiers."""
    return NoSessions(pipeline.name) if space is None else SessionDesk(pipeline, space)


def _without_sessions(plan: Plan) -> Plan:
    return replace(plan, sessions=()) if plan.sessions else plan


def _opened(name: str) -> str:
    return f"session {name!r} is open"


def _closed(name: str) -> str:
    return f"session {name!r} is closing"


def _replanned(name: str) -> str:
    return f"session {name!r} is being replanned"


def _objectives(session: Session) -> tuple[float | None, ...]:
    return session.slo_s, session.accuracy, session.usd_per_h, session.weight


def _still_open(session: Session) -> None:
    if session.state is SessionState.CLOSING:
        raise CommandError(f"session {session.id!r} closes; open another one")


def _failures(report: Report) -> LoadFailures:
    """Return the settings that a worker cannot load."""
    names = map(count_name, report.counts)
    return LoadFailures(frozenset(of for what, of in names if what == UNLOADABLE), report.error)
