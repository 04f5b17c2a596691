"""The sessions of a pipeline: their states, and the query plans that nodes follow.

A plan that gets devices is first published without ``admits``, so that workers load its settings.
Once all of them report these as held, it admits, and the previous plan drains. A session that loses
its devices takes others at once, by any of its plans that fits. Waiting sessions are placed in
falling order of

    weight * (1 + seconds of waiting / ageing_s)

so that none starves (Compass, Section 4.3: weights grow with waiting time). A session that waits
alone takes its cheapest plan that fits. Several are ``contending``: they wait until a schedule has
assigned their plans (control/controller/session_schedules.py). While its search continues, a
session serves by the first plan found; at the end of the search it moves to the cheapest one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from control.problem.seats import Seat, seat_worker
from control.problem.session_space import AGEING_S, MOST_WEIGHT, SessionSpace
from control.sessions.devices import Devices, session_plan
from control.sessions.objectives import kept_plans, search_reason
from control.sessions.session_entry import SessionEntry, index_of, is_of_choice, since_opening
from control.sessions.session_restore import NO_DEVICE, reconcile, restored
from control.sessions.session_states import TRANSITIONS, SessionChange
from control.state_machine import StateMachine
from schemas.effects import SESSIONS, Effect, Forget, Send
from schemas.enumerations import SessionState
from schemas.pipeline import Pipeline
from schemas.records import Session, SessionChoice, SessionPlan

NO_PLAN = "no plan was found for it"
TO_SEARCH = "its search is queued behind other searches"
LOADING = "loading the settings of its plan"
# Ways out for a session without a plan that can be loaded, after the error.
SEARCH_AGAIN = "; `headrace session replan` searches for other plans"
OPEN_AGAIN = "; close the session and open it with another plan, or with this one once it loads"


class LoadFailures(NamedTuple):
    """The settings that a worker cannot load, and why."""

    settings: frozenset[str] = frozenset()
    why: str = ""


Held = Mapping[str, frozenset[str]]  # worker -> settings that it has loaded


class SessionBook:
    """All sessions of one pipeline. Invariant: a session has at most one plan that admits.

    After ``ageing_s`` of waiting, set by the policy, the weight of a session has doubled."""

    def __init__(self, pipeline: Pipeline, space: SessionSpace) -> None:
        self._pipeline = pipeline.name
        self._tasks = pipeline.task_names
        self._space = space
        self._grace_s = pipeline.grace_s
        self._entries: dict[str, SessionEntry] = {}
        self.ageing_s = AGEING_S
        self.contending: tuple[Session, ...] = ()  # as of the last review
        # As of the last review: free quarters by tier and pool, and the devices of one session.
        self.free: Mapping[tuple[str, str], tuple[int, ...]] = {}
        self.bound: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def session(self, name: str) -> Session:
        """Return a session's record; raise ``KeyError``."""
        return self._entries[name].session

    @property
    def sessions(self) -> tuple[Session, ...]:
        """Every session, in the order of opening."""
        return tuple(entry.session for entry in self._entries.values())

    @property
    def serving(self) -> dict[str, SessionPlan]:
        """The plans, by session, of the sessions that serve and are not being replanned."""
        return {
            name: entry.serving
            for name, entry in self._entries.items()
            if entry.serving is not None
            and entry.state is SessionState.SERVING
            and not entry.improves
        }

    @property
    def plans(self) -> tuple[SessionPlan, ...]:
        """The query plans for the nodes, by session and number."""
        coming = [entry.coming for entry in self._entries.values() if entry.coming is not None]
        return tuple(sorted((*self.running, *coming), key=lambda plan: (plan.session, plan.number)))

    @property
    def running(self) -> tuple[SessionPlan, ...]:
        """The query plans by which queries run: those that admit and those that drain."""
        return tuple(
            each
            for entry in self._entries.values()
            for each in (entry.serving, *(plan for plan, _ in entry.going))
            if each is not None
        )

    # ------------------------------------------------------------------ restart

    def restore(self, session: Session) -> None:
        """Add a session's record from before a restart."""
        self._entries[session.id] = restored(session)

    def resume(self, plans: Iterable[SessionPlan], now: float) -> None:
        """Resume the query plans of the plan in force, once all records are restored."""
        by_session: dict[str, list[SessionPlan]] = {}
        for each in plans:
            by_session.setdefault(each.session, []).append(each)
        for name, entry in self._entries.items():
            reconcile(entry, by_session.get(name, ()), self._grace_s, now)

    # ------------------------------------------------------------------ requests

    def open(self, session: Session, now: float) -> None:
        """Add a session, which waits for devices if it has plans, else for its search."""
        opened = replace(
            session, state=SessionState.OPENING, opened_s=now, changed_s=now, reason=TO_SEARCH
        )
        states = StateMachine(f"session {session.id}", TRANSITIONS, SessionState.OPENING)
        self._entries[session.id] = SessionEntry(opened, states)
        if session.plans:
            self.planned(session.id, session.plans, now)

    def unplanned(self) -> tuple[Session, ...]:
        """Return the sessions that need a search, in the order of opening."""
        return tuple(e.session for e in self._entries.values() if e.planless or e.improves)

    def planless(self, name: str) -> bool:
        """Return whether a session's search has found no plan yet."""
        return self._entries[name].planless

    def searched(self, name: str, reason: str, now: float) -> None:
        """Record the state of a session's search."""
        self._entries[name].go(SessionChange.SEARCH, now, reason)

    def spent(self, name: str, figures: Mapping[str, float | int | str]) -> None:
        """Record the steps and times of a session's search so far, as fields of its record."""
        entry = self._entries[name]
        entry.session = replace(entry.session, **figures)

    def first_planned(self, name: str, plans: Sequence[SessionChoice], now: float) -> None:
        """Give a session the first plans of its search, which continues."""
        self.planned(name, plans, now)
        self._entries[name].improves = True

    def planned(
        self, name: str, plans: Sequence[SessionChoice], now: float, reason: str = NO_PLAN
    ) -> None:
        """Give a session plans to choose from, the best first; none: the search found none, for
        ``reason``."""
        entry = self._entries[name]
        improved, entry.improves = entry.improves, False
        entry.replans = False
        if improved and not plans:  # the search continued beyond a plan that is kept
            entry.session = replace(entry.session, reason=reason)
            return
        entry.known_s = now if plans else None
        if plans:
            present = entry.in_force if improved else ()
            plans = (*plans, *(each for each in present if each not in plans))
            chosen = index_of(plans, entry.serving)
            first_s = entry.session.first_s if improved else entry.session.search_s
            planned_s = since_opening(entry.session, entry.session.planned_s, now)
            entry.session = replace(
                entry.session, plans=plans, chosen=chosen, first_s=first_s, planned_s=planned_s
            )
            if entry.coming is not None and index_of(plans, entry.coming) != 0:
                entry.coming = None
            if chosen == 0 and entry.state is SessionState.SERVING:
                return
            entry.go(SessionChange.PLANS, now, NO_DEVICE)
        elif entry.state is SessionState.REPLANNING:
            entry.go(SessionChange.KEEP, now, reason)
        else:
            entry.go(SessionChange.PLANS, now, reason)

    def replan(self, name: str, now: float, **changes: Any) -> None:
        """Make a session wait for new plans while it serves by its present one.

        ``changes`` are fields of its record: why it is replanned, or other samples.
        """
        entry = self._entries[name]
        entry.go(SessionChange.REPLAN, now, TO_SEARCH)
        count = entry.session.replans + 1
        entry.session = replace(entry.session, replans=count, **changes)
        entry.replans, entry.improves = entry.state is SessionState.REPLANNING, False
        entry.coming = None

    def change_objectives(self, changed: Session, now: float) -> str:
        """Give a session the objectives of ``changed``; return why it needs a new search, or "".
        Deadlines change at once; a running search starts over."""
        entry = self._entries[changed.id]
        before, present = entry.session, entry.in_force
        plans = kept_plans(changed, present)
        chosen = plans.index(present[0]) if present else -1
        entry.session = replace(changed, plans=plans, chosen=chosen)
        entry.assigned = None
        if entry.serving is not None:
            entry.owe(self._grace_s, now)
            entry.serving = replace(entry.serving, slo_s=changed.slo_s)
        if entry.coming is not None:
            coming = replace(entry.coming, slo_s=changed.slo_s)
            entry.coming = coming if index_of(plans, coming) >= 0 else None
        if entry.planless:
            entry.session = replace(entry.session, changed_s=now)  # its search gets its full time
            return "the search restarts"
        why = search_reason(before, entry.session, present)
        if why:
            self.replan(changed.id, now, cause=f"a command: {why}", detect_s=0.0)
        return why

    def assign(self, plans: Mapping[str, SessionChoice], schedule_s: float) -> None:
        """Assign a schedule's plans to contending sessions; a session that no longer has the plan
        keeps contending."""
        for name, plan in plans.items():
            entry = self._entries.get(name)
            if entry is not None and entry.contends and plan in entry.session.plans:
                entry.assigned = plan
                entry.session = replace(entry.session, schedule_s=schedule_s)

    def close(self, name: str, now: float) -> None:
        """Stop admitting queries of a session; ``deletions`` removes it once those in flight have
        ended."""
        entry = self._entries[name]
        entry.go(SessionChange.CLOSE, now, entry.session.reason)  # why it waited stays known
        entry.drain(self._grace_s, now)
        entry.coming, entry.replans, entry.improves = None, False, False

    # ------------------------------------------------------------------ devices

    def review(
        self, seats: Sequence[Seat], held: Held, failures: Mapping[str, LoadFailures], now: float
    ) -> None:
        """Update sessions after changes of devices and loads, and place the waiting ones.

        ``failures`` has the settings that workers cannot load; other plans are tried instead.
        """
        devices = Devices(seats, self._space)
        for entry in self._entries.values():
            self._follow(entry, devices, held, now)
            if failures:
                self._reject(entry, failures, now)
        self.drained(now)
        for entry in self._entries.values():
            self._part(entry, devices, now)
            for plan in filter(None, (entry.serving, entry.coming)):
                devices.take(plan)
        for entry in self._entries.values():
            for plan, _ in entry.going:  # its queries still run
                devices.take(plan, drains=True)
        self._place_waiting(devices, now)

    def drained(self, now: float) -> None:
        """Discard plans that have drained."""
        for entry in self._entries.values():
            entry.going = [(plan, until_s) for plan, until_s in entry.going if now < until_s]

    def _place_waiting(self, devices: Devices, now: float) -> None:
        contending: list[SessionEntry] = []
        direct: list[SessionEntry] = []
        for entry in self._entries.values():
            if entry.waits:
                (contending if entry.contends else direct).append(entry)
        if len(contending) == 1:
            direct += contending
        for entry in sorted(direct, key=lambda each: self._urgency(each, now)):
            self._place(entry, entry.session.plans, devices, now)
        # The largest shares come first, to reach the schedule's exact packing.
        for entry in sorted(contending, key=_largest_first):
            if entry.assigned is not None:
                choice, entry.assigned = entry.assigned, None
                self._place(entry, (choice,), devices, now)
        left = [entry.session for entry in contending if entry.waits]
        self.contending = tuple(left) if len(left) > 1 else ()
        self.free = devices.free
        self.bound = devices.bound

    def aged_weight(self, session: Session, now: float) -> float:
        """Return the aged weight of a waiting session."""
        waited_s = max(now - session.changed_s, 0.0)
        return min(session.weight, MOST_WEIGHT) * (1 + waited_s / self.ageing_s)

    def _urgency(self, entry: SessionEntry, now: float) -> tuple[float, float, str]:
        session = entry.session
        return -self.aged_weight(session, now), session.opened_s, session.id

    def next_s(self) -> float:
        """Return the time at which a plan has drained; infinite if none drains."""
        ends = (until_s for entry in self._entries.values() for _, until_s in entry.going)
        return min(ends, default=float("inf"))

    def news(self) -> list[Effect]:
        """Return the records to write since the last call."""
        effects: list[Effect] = []
        for entry in self._entries.values():
            if entry.session != entry.written:
                entry.written = entry.session
                effects.append(Send(SESSIONS, entry.session, 0, entry.session.id))
        return effects

    def deletions(self) -> list[Effect]:
        """Remove the closed sessions without a plan, and return the deletions of their records.

        They follow the result of the command that closed the session: a control app that starts
        between the two finds the record, and does not refuse the command.
        """
        closed = [
            name
            for name, entry in self._entries.items()
            if entry.state is SessionState.CLOSING and not entry.going
        ]
        for name in closed:
            del self._entries[name]
        return [Forget(SESSIONS, name) for name in closed]

    def _follow(self, entry: SessionEntry, devices: Devices, held: Held, now: float) -> None:
        if entry.coming is not None and not devices.holds(entry.coming):
            entry.coming = None
        if entry.serving is not None and not devices.holds(entry.serving):
            entry.drain(self._grace_s, now)
            entry.lose(NO_DEVICE, now)
        if entry.coming is not None and holds_settings(entry.coming, held):
            entry.drain(self._grace_s, now)
            entry.serve(replace(entry.coming, admits=True), now)

    def _part(self, entry: SessionEntry, devices: Devices, now: float) -> None:
        """Give up a plan beside sessions of another pool: a task may be ``batched`` only since a
        restart."""
        if entry.coming is not None and devices.mixes(entry.coming):
            entry.coming = None
        if entry.serving is not None and devices.mixes(entry.serving):
            entry.drain(self._grace_s, now)
            entry.lose(NO_DEVICE, now)

    def _reject(
        self, entry: SessionEntry, failures: Mapping[str, LoadFailures], now: float
    ) -> None:
        """Discard plans with a setting that cannot be loaded: the loading plan, and the serving one
        if there are others. If there is none, its workers keep trying. A session that waited for
        its only new plan keeps the serving one."""
        why = _unloadable(entry.coming, failures)
        if why is not None:
            others = _without(entry.session.plans, entry.coming)
            entry.coming = None
            chosen = index_of(others, entry.serving)
            if not others and entry.state is SessionState.WAITING:
                why += SEARCH_AGAIN if entry.session.samples else OPEN_AGAIN
            entry.session = replace(entry.session, plans=others, chosen=chosen, reason=why)
            if not others and entry.state is SessionState.REPLANNING:
                entry.go(SessionChange.KEEP, now, why)
        why = _unloadable(entry.serving, failures)
        if why is None or entry.state is SessionState.CLOSING:
            return
        others = _without(entry.session.plans, entry.serving)
        if others:
            entry.drain(self._grace_s, now)
            entry.lose(why, now)
            entry.session = replace(entry.session, plans=others)

    def _place(
        self, entry: SessionEntry, choices: Sequence[SessionChoice], devices: Devices, now: float
    ) -> None:
        session, present = entry.session, entry.serving
        for choice in choices:
            if present is not None and is_of_choice(choice, present):
                entry.go(SessionChange.KEEP, now)
                return
            placed = devices.place(session.id, choice, self._tasks)
            if placed is not None:
                number = session.number + 1
                entry.coming = session_plan(session.id, number, session.slo_s, choice, placed)
                devices.take(entry.coming)
                entry.session = replace(session, number=number, reason=LOADING)
                return
        entry.session = replace(session, reason=NO_DEVICE)


def holds_settings(plan: SessionPlan, held: Held) -> bool:
    """Return whether every worker of a plan holds its setting."""
    return all(
        stage.setting in held.get(seat_worker(stage.device, stage.task), ())
        for stage in plan.stages
    )


def _unloadable(plan: SessionPlan | None, failures: Mapping[str, LoadFailures]) -> str | None:
    """Return why a setting of a plan cannot be loaded; None: all can, or there is no plan."""
    for stage in () if plan is None else plan.stages:
        failed = failures.get(seat_worker(stage.device, stage.task), LoadFailures())
        if stage.setting in failed.settings:
            return failed.why
    return None


def _without(plans: Sequence[SessionChoice], plan: SessionPlan | None) -> tuple[SessionChoice, ...]:
    return tuple(each for each in plans if plan is None or not is_of_choice(each, plan))


def held_settings(plans: Iterable[SessionPlan], task: str, slots: Iterable[int]) -> tuple[str, ...]:
    """Return the settings that the worker of a task's slots must hold."""
    read = frozenset(slots)
    return tuple(
        dict.fromkeys(
            stage.setting
            for plan in plans
            for stage in plan.stages
            if stage.task == task and stage.slot in read
        )
    )


def _largest_first(entry: SessionEntry) -> tuple[int, float, str]:
    quarters = entry.assigned.quarters.values() if entry.assigned else ()
    return -max(quarters, default=0), entry.session.opened_s, entry.session.id
