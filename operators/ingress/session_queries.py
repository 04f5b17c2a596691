"""Sessions at ingress: the query plan that a query follows, and why a query is refused."""

from control.policies import plans_sessions
from operators.drop_reasons import Reason, bad_input, no_session_plan, no_sessions
from schemas.pipeline import Pipeline
from schemas.records import Plan, SessionPlan
from schemas.release import WITH_SESSIONS


class SessionQueries:
    """The sessions of the plan in force, from ingress' view."""

    __slots__ = ("_opened", "_plans", "_withheld", "active")

    def __init__(self) -> None:
        self.active = False  # whether every query follows the plan of its session
        self._plans: dict[str, SessionPlan] = {}  # admitting plans, by session
        self._opened: frozenset[str] = frozenset()  # sessions with a plan, admitting or not
        self._withheld: Reason | None = None  # why plans cannot name sessions, if they cannot

    def change(self, plan: Plan, pipeline: Pipeline) -> None:
        """Follow a plan."""
        self.active = plans_sessions(pipeline, plan.settings.policy)
        self._plans = {each.session: each for each in plan.sessions if each.admits}
        older = plan.release < WITH_SESSIONS
        self._withheld = no_sessions(pipeline.root.name) if older else None
        self._opened = frozenset([each.session for each in plan.sessions])

    def plan_of(self, session: str) -> SessionPlan | None:
        """Return a session's query plan; None if it admits no queries."""
        return self._plans.get(session)

    def known(self, session: str) -> str:
        """Return the session; "" if it is not open."""
        return session if session in self._opened else ""

    def refusal(self, session: str) -> Reason | None:
        """Return why a session's query is refused, if every query needs a query plan; else None."""
        if session in self._plans:
            return None
        if not session:
            return bad_input(
                "the query names no session, and this pipeline serves sessions: open one with "
                "`headrace session open` and name it in the header headrace-session"
            )
        if session in self._opened:
            return no_session_plan(session)
        return self._withheld or bad_input(
            f"no session {session!r} is served; open it with `headrace session open`, or see in "
            "`headrace session list` what it waits for"
        )
