"""Sessions after a restart, when their records and the plan in force may be inconsistent.

A plan is written before the records of its sessions. A control app that ends in between leaves
records that are one step behind; the plans topic may also be lost. The plan takes precedence and
records are updated to it, because nodes have acted on the plan.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from control.sessions.session_entry import SessionEntry, index_of
from control.sessions.session_states import TRANSITIONS, SessionChange
from control.state_machine import StateMachine
from schemas.enumerations import SessionState
from schemas.records import Session, SessionPlan

NO_DEVICE = "no devices are free for any of its plans"
SERVES = (SessionState.SERVING, SessionState.REPLANNING)
SEARCHED = (SessionState.OPENING, SessionState.SEARCHING)


def restored(session: Session) -> SessionEntry:
    """Return a session from its record alone; ``reconcile`` adds its query plans."""
    replans = session.state is SessionState.REPLANNING
    goes_on = bool(session.samples and session.plans) and not session.stopped
    improves = goes_on and session.state in (SessionState.WAITING, SessionState.SERVING)
    return SessionEntry(
        session, _states(session, session.state), written=session, replans=replans,
        improves=improves,
    )  # fmt: skip


def reconcile(
    entry: SessionEntry, plans: Iterable[SessionPlan], grace_s: float, now: float
) -> None:
    """Give a restored session its query plans of the plan in force, and the matching state.

    A plan that admits serves. A loading plan continues to load if the session can wait for it. Any
    other plan has admitted before, or is no longer needed: it drains.
    """
    before = entry.session
    admitting: SessionPlan | None = None
    for plan in plans:
        entry.session = replace(entry.session, number=max(entry.session.number, plan.number))
        if entry.state is SessionState.CLOSING:
            entry.let_drain(plan, grace_s, now)
        elif plan.admits:
            admitting = plan
        elif _may_come(plan, before) and not entry.replans:
            entry.coming = plan
        else:
            entry.let_drain(plan, grace_s, now)
    if admitting is not None:
        _serve(entry, admitting, now)
    elif entry.state in SERVES:
        entry.lose(NO_DEVICE, now)
    if entry.state is SessionState.SERVING:
        entry.coming = None  # from a search that continues and finds it again


def _serve(entry: SessionEntry, plan: SessionPlan, now: float) -> None:
    if entry.state in SERVES:
        entry.serving = plan
    elif entry.state is SessionState.WAITING:
        entry.serve(plan, now)
    elif entry.state in SEARCHED:
        entry.serving, entry.replans = plan, True
        entry.states = _states(entry.session, SessionState.REPLANNING)
        entry.session = replace(entry.session, state=SessionState.REPLANNING)


def _may_come(plan: SessionPlan, record: Session) -> bool:
    """Return whether, by the record, a plan that does not admit is loading and never served."""
    at = index_of(record.plans, plan)
    if at < 0 or plan.number < record.number or record.state in SEARCHED:
        return False
    if plan.number > record.number:  # newer than the record
        return True
    served = record.state in SERVES and record.chosen in (-1, at)
    return not served and record.state is not SessionState.SERVING


def _states(session: Session, state: SessionState) -> StateMachine[SessionState, SessionChange]:
    return StateMachine(f"session {session.id}", TRANSITIONS, state)
