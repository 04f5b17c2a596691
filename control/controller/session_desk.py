"""The controller's part for sessions: commands, searches, schedules, the query plans in every plan.

Sessions are restored from their compacted topic, their query plans from the plan in force. If the
policy does not plan sessions, plans carry no query plans and sessions wait.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from control.controller.commands import CommandError, unexpired
from control.controller.departures import Departures
from control.controller.node_releases import HOLD_S
from control.controller.session_commands import (
    CLOSE,
    OPEN,
    REPLAN,
    SET_SLO,
    asked_session,
    named_session,
    with_objectives,
)
from control.controller.session_schedules import SessionSchedules
from control.estimation.operator_paces import OperatorPaces
from control.policies import plans_sessions, policy_named, spec_of
from control.policies.compass.session_options import AGEING, IDLE
from control.problem.lazy_references import object_named
from control.problem.plan_reasons import SESSIONS, made_for
from control.problem.sample_sets import WORKLOAD, Truth, first_set, own_set
from control.problem.seats import open_seats
from control.problem.session_space import SessionSpace
from control.sessions.session_book import LoadFailures, SessionBook
from control.sessions.session_health import SessionHealth
from schemas.count_names import UNLOADABLE, count_name
from schemas.effects import Effect, Failed, Solved
from schemas.enumerations import SessionState
from schemas.pipeline import Pipeline
from schemas.records import Command, Plan, ProfileResult, Record, Report, Session, SessionChoice
from schemas.release import UNDECLARED, WITH_SESSIONS

if TYPE_CHECKING:
    from control.controller.session_searches import SessionSearches

Answered = tuple[Command, bool, str]
SEED_DIGITS = 18  # of a workload's seed


class SessionDesk:
    """The sessions of a pipeline; ``space`` is None without tiers: then there are no sessions.

    ``changed``: the known state has changed since the last review.
    """

    def __init__(self, pipeline: Pipeline, space: SessionSpace | None) -> None:
        self._pipeline = pipeline
        self._space = space
        self._book: SessionBook | None = None
        self._searches: SessionSearches | None = None
        self._schedules: SessionSchedules | None = None
        self._health: SessionHealth | None = None
        self._paces: OperatorPaces | None = None
        if space is not None:
            self._book = SessionBook(pipeline, space)
            # Imports SciPy's functions, which pipelines without sessions do not need.
            searches = object_named("control.controller.session_searches:SessionSearches")
            self._searches = searches(pipeline.name, space)
            self._schedules = SessionSchedules(space)
            self._health = SessionHealth(space, pipeline.longest_deadline_s + pipeline.grace_s)
            self._paces = OperatorPaces(space)
        self._held: dict[str, frozenset[str]] = {}  # by worker
        self._failures: dict[str, LoadFailures] = {}  # by worker
        self._departures = Departures()
        self._reads = UNDECLARED
        self._started_s = float("-inf")
        self.changed = False

    # ------------------------------------------------------------------ records

    def take(self, record: Record, now: float) -> None:
        """Record a session from before a restart, a worker's report, or a profile result."""
        if self._book is None:
            return
        if isinstance(record, Report):
            if record.pipeline == self._pipeline.name:
                self._heard(record, now)
        elif isinstance(record, Session) and record.pipeline == self._pipeline.name:
            self._book.restore(record)
        elif isinstance(record, ProfileResult) and self._searches is not None:
            self._searches.take(record)

    @property
    def searches(self) -> bool:
        """Whether results of profilers are to be read."""
        return self._searches is not None

    def start(self, plan: Plan | None, now: float) -> None:
        """Resume the query plans of the plan in force; None: there is none, or it is lost."""
        self._started_s = now
        if self._book is not None:
            self._book.resume(() if plan is None else plan.sessions, now)

    def solved(self, event: Solved | Failed, now: float) -> bool:
        """Handle the end of a search's step or of a schedule; return False if it is neither."""
        if self._book is None or self._searches is None or self._schedules is None:
            return False
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
        if self._book is None or self._searches is None or self._schedules is None:
            return []
        assert self._health is not None
        assert self._paces is not None
        named = policy_named(self._pipeline, policy)
        if named is None or not spec_of(named.kind).sessions:
            return []
        book, searches = self._book, self._searches
        book.ageing_s = AGEING.of(named)
        self._watch(book, self._health, now)
        idle_s = IDLE.of(named)
        for name in self._health.idle(idle_s, now) if idle_s else ():
            book.close(name, now)
            self._health.forget(name)
            self.changed = True
        waiting = book.unplanned()
        searches.begin(waiting, self._health, self._paces, named, now)
        effects = searches.advance(waiting, now)
        self._found(book, searches, waiting, now)
        return [*effects, *self._schedules.begin(book, named, now)]

    def _found(
        self, book: SessionBook, searches: "SessionSearches", waiting: Sequence[Session], now: float
    ) -> None:
        """Assign the first plans of running searches and all plans of ended ones to sessions.

        A session that is replanned because its accuracy has dropped does not wait for a plan that
        complies: the first plan that is certainly more accurate serves meanwhile.
        """
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
        assert self._health is not None
        if nearest is None or not self._health.helps(name, nearest[1]):
            return ()
        return (nearest[0],)

    def _watch(self, book: SessionBook, health: SessionHealth, now: float) -> None:
        """Replan the sessions whose observed health raises an alarm."""
        assert self._space is not None
        assert self._paces is not None
        serving = book.serving
        health.serves(serving, now)
        self._paces.serves(serving, book.session, now)
        for name in serving:
            session = book.session(name)
            alarm = health.alarm(session, now, self._paces.extra_s(session, now))
            if alarm is None:
                continue
            changes: dict[str, str | float] = {
                "cause": alarm.reason,
                "detect_s": max(0.0, now - alarm.since_s),
            }
            if not alarm.drift.reprices:
                changes["samples"] = own_set(self._space.truth, name, alarm.since_s, now)
            book.replan(name, now, **changes)

    def _heard(self, report: Report, now: float) -> None:
        for gone in self._departures.heard(report.node, now):
            self._held.pop(gone, None)
            self._failures.pop(gone, None)
            if self._health is not None:
                self._health.forget_node(gone)
            if self._paces is not None:
                self._paces.forget_node(gone)
        if self._health is not None:
            self._health.take(report, now)
        if self._paces is not None:
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
        self._reads = reads
        return [self._result(command, policy, now) for command in given]

    def _result(self, command: Command, policy: str, now: float) -> Answered:
        try:
            message = self.done_before(command, now)
            if not message:
                unexpired(command, now)
                message = self._carried_out(command, policy, now)
        except CommandError as error:
            return command, False, str(error)
        self.changed = True
        return command, True, message

    def done_before(self, command: Command, now: float) -> str:
        """Return the message of a command that the control app before this one carried out, and
        ended before it could write the result; "" if it did not."""
        name = command.arguments.get("session", "")
        if self._book is None or self._space is None or name not in self._book:
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

    def _carried_out(self, command: Command, policy: str, now: float) -> str:
        name = named_session(command.action, command.arguments)
        book, space, health = self._book, self._space, self._health
        if book is None or space is None or health is None:
            raise CommandError(
                f"{self._pipeline.name} has no sessions: its cluster has no tiers; add "
                "cluster.tiers to the pipeline file"
            )
        if command.action == OPEN:
            if not plans_sessions(self._pipeline, policy):
                raise CommandError(
                    f"the policy {policy!r} plans no sessions; apply one of kind compass first: "
                    "`headrace policy apply`"
                )
            if self._reads < WITH_SESSIONS:
                raise CommandError(
                    "a node of an older release runs, which knows no sessions; upgrade or end it, "
                    f"and open the session {HOLD_S:g} s later"
                )
            return self._open(name, command, book, space, now)
        if name not in book:
            known = ", ".join(each.id for each in book.sessions[:10]) or "none"
            raise CommandError(f"there is no session {name!r}; open are: {known}")
        if command.action == CLOSE:
            book.close(name, now)
            health.forget(name)
            return _closed(name)
        if command.action == SET_SLO:
            return self._change(command, book, health, now)
        return self._replan(name, book, health, now)

    def _replan(self, name: str, book: SessionBook, health: SessionHealth, now: float) -> str:
        session = book.session(name)
        _still_open(session)
        if not session.samples:
            raise CommandError(
                f"session {name!r} cannot be planned again: its plan was made by hand"
            )
        health.forget(name)
        if not book.planless(name):  # else a plan is being searched already
            book.replan(name, now, cause="a command", detect_s=0.0)
        return _replanned(name)

    def _change(
        self, command: Command, book: SessionBook, health: SessionHealth, now: float
    ) -> str:
        session = book.session(command.arguments["session"])
        _still_open(session)
        changed = with_objectives(session, command.arguments)
        if not book.planless(session.id):  # else it may still serve by the inaccurate plan
            health.objectives_changed(session.id)
        why = book.change_objectives(changed, now)
        done = f"objectives of session {session.id!r} changed"
        return f"{done}; searching for a plan: {why}" if why else f"{done}; it keeps its plan"

    def _open(
        self, name: str, command: Command, book: SessionBook, space: SessionSpace, now: float
    ) -> str:
        asked = asked_session(command.arguments, self._pipeline, space, now)
        if name in book:
            raise CommandError(f"session {name!r} is open already; close it or name another one")
        if not asked.plans:
            self._check_search(asked, space, now)
        book.open(asked, now)
        return _opened(name)

    def _check_search(self, asked: Session, space: SessionSpace, now: float) -> None:
        if not space.profilers:
            raise CommandError(
                "no plan can be searched: the pipeline file names no workload, whose samples "
                "profilers run; add one, or profiling: {truth: feedback} for labelled inputs, or "
                "give a plan made by hand: --plan FILE"
            )
        if asked.accuracy is None:
            raise CommandError(
                "the session names no accuracy to search for, nor does the pipeline file; give "
                "--accuracy 0.9, or a plan made by hand: --plan FILE"
            )
        if space.truth is Truth.FEEDBACK:
            if asked.samples != first_set(space.truth, now):
                raise CommandError(
                    f"no sample set {asked.samples!r}: profiling.truth is feedback, so profiles "
                    "are of labelled inputs; leave --samples out"
                )
            return
        seed = asked.samples.removeprefix(WORKLOAD)
        numbered = seed.isdecimal() and len(seed) <= SEED_DIGITS
        if seed == asked.samples or not numbered:
            raise CommandError(f"no sample set {asked.samples!r}; name one as workload@7")

    # ------------------------------------------------------------------ plans

    def due(self, now: float) -> bool:
        """Return whether the query plans may have changed since the last plan."""
        return self._book is not None and (self.changed or now >= self._book.next_s())

    def stamped(self, plan: Plan, devices: Mapping[str, str], now: float) -> Plan:
        """Return a plan with the query plans that fit its leases.

        ``devices`` is by worker; if any is "", a worker that has not reported, the query plans are
        not judged.
        """
        if self._book is None or not plans_sessions(self._pipeline, plan.settings.policy):
            if self._book is not None:
                self._book.drained(now)
            return replace(plan, sessions=()) if plan.sessions else plan
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
        return self._book.news() if self._book is not None else []

    def deletions(self) -> list[Effect]:
        """Return the deletions of closed sessions, to be written after the results of commands."""
        return self._book.deletions() if self._book is not None else []


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
