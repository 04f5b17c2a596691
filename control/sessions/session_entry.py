"""The state of one session in the control app, beyond its record."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from control.sessions.session_states import SessionChange
from control.state_machine import StateMachine
from schemas.enumerations import SessionState
from schemas.records import Session, SessionChoice, SessionPlan


@dataclass(slots=True)
class SessionEntry:
    """One session: the plan that admits, the one that loads, and those that drain with an end."""

    session: Session
    states: StateMachine[SessionState, SessionChange]
    serving: SessionPlan | None = None
    coming: SessionPlan | None = None
    going: list[tuple[SessionPlan, float]] = field(default_factory=list)
    written: Session | None = None
    replans: bool = False  # its new plans are unknown yet
    improves: bool = False  # it has the first plans of its search, which continues
    known_s: float | None = None  # time since when its newest plans are known
    assigned: SessionChoice | None = None  # by the schedule
    owed_until_s: float = 0.0  # end of queries that were admitted under an earlier SLO

    @property
    def state(self) -> SessionState:
        return self.states.state

    @property
    def waits(self) -> bool:
        """Whether it could use devices."""
        wanted = self.state in (SessionState.WAITING, SessionState.REPLANNING)
        return wanted and self.coming is None and bool(self.session.plans) and not self.replans

    @property
    def contends(self) -> bool:
        """Whether it waits for its first devices. A session that lost devices does not contend."""
        return self.waits and self.state is SessionState.WAITING and not self.session.number

    @property
    def planless(self) -> bool:
        """Whether its search has found no plan yet."""
        return self.replans or self.state in (SessionState.OPENING, SessionState.SEARCHING)

    @property
    def in_force(self) -> tuple[SessionChoice, ...]:
        """The serving plan if it is one of its search's, so that the session may keep it."""
        chosen = self.session.chosen
        return self.session.plans[chosen : chosen + 1] if chosen >= 0 else ()

    def go(self, change: SessionChange, now: float, reason: str = "") -> None:
        before = self.state
        self.states.go(change)
        changed_s = self.session.changed_s if before is self.state else now
        self.session = replace(self.session, state=self.state, changed_s=changed_s, reason=reason)

    def serve(self, plan: SessionPlan, now: float) -> None:
        """Serve by a plan that admits."""
        self.serving, self.coming = plan, None
        self.go(SessionChange.SERVE, now)
        self.session = replace(
            self.session,
            chosen=index_of(self.session.plans, plan),
            switch_s=0.0 if self.known_s is None else now - self.known_s,
            serving_s=since_opening(self.session, self.session.serving_s, now),
        )

    def lose(self, reason: str, now: float) -> None:
        """Wait for other devices: those of its plan are lost."""
        self.go(SessionChange.LOSE, now, reason)
        self.replans = False  # its known plans serve at once; lasting drift is detected again
        self.session = replace(self.session, chosen=-1)

    def drain(self, grace_s: float, now: float) -> None:
        """Stop admitting queries by the serving plan."""
        if self.serving is not None:
            self.let_drain(self.serving, grace_s, now)
            self.serving = None

    def let_drain(self, plan: SessionPlan, grace_s: float, now: float) -> None:
        """Keep a plan until its queries have ended. Queries with a later deadline of their own do
        not count, because workers load a setting that work in flight needs."""
        until_s = max(now + plan.slo_s + grace_s, self.owed_until_s)
        self.going.append((replace(plan, admits=False), until_s))

    def owe(self, grace_s: float, now: float) -> None:
        """Record until when queries that were admitted under the present SLO may end."""
        if self.serving is not None:
            self.owed_until_s = max(self.owed_until_s, now + self.serving.slo_s + grace_s)


def since_opening(session: Session, known_s: float | None, now: float) -> float:
    """Return ``known_s``, or without it the seconds from a session's opening until now."""
    return now - session.opened_s if known_s is None else known_s


def is_of_choice(choice: SessionChoice, plan: SessionPlan) -> bool:
    """Return whether ``plan`` is of this choice."""
    return all(
        (choice.settings[stage.task], choice.tiers[stage.task], choice.quarters.get(stage.task, 0))
        == (stage.setting, stage.tier, stage.quarters)
        for stage in plan.stages
    )


def index_of(plans: Sequence[SessionChoice], plan: SessionPlan | None) -> int:
    """Return the index of the choice of ``plan``; -1 if there is none, or no plan."""
    if plan is None:
        return -1
    return next((at for at, choice in enumerate(plans) if is_of_choice(choice, plan)), -1)
