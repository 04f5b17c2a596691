"""What the control app knows of one session beyond its record."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from control.sessions.session_states import SessionChange
from control.state_machine import StateMachine
from schemas.enumerations import SessionState
from schemas.records import Session, SessionChoice, SessionPlan


@dataclass(slots=True)
class SessionEntry:
    """One session: the plan that admits, the one that loads, and those that drain, until when."""

    session: Session
    states: StateMachine[SessionState, SessionChange]
    serving: SessionPlan | None = None
    coming: SessionPlan | None = None
    going: list[tuple[SessionPlan, float]] = field(default_factory=list)
    written: Session | None = None
    replans: bool = False  # its new plans are not known yet
    improves: bool = False  # it has the first plans of its search, which goes on
    known_s: float | None = None  # since then its newest plans are known
    assigned: SessionChoice | None = None  # by the schedule
    owed_until_s: float = 0.0  # queries that were admitted under an earlier SLO

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
        """Whether it waits for its first devices; one that lost devices takes others at once."""
        return self.waits and self.state is SessionState.WAITING and not self.session.number

    @property
    def planless(self) -> bool:
        """Whether its search has found no plan yet."""
        return self.replans or self.state in (SessionState.OPENING, SessionState.SEARCHING)

    @property
    def in_force(self) -> tuple[SessionChoice, ...]:
        """The plan by which it serves, if it is one of its search's: it may stay with it."""
        chosen = self.session.chosen
        return self.session.plans[chosen : chosen + 1] if chosen >= 0 else ()

    def go(self, change: SessionChange, now: float, reason: str = "") -> None:
        before = self.state
        self.states.go(change)
        changed_s = self.session.changed_s if before is self.state else now
        self.session = replace(self.session, state=self.state, changed_s=changed_s, reason=reason)
