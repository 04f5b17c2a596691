"""Changes of an open session's objectives: which plans meet them, and when to search.

A search is needed if the plan in use no longer meets the objectives, if a higher accuracy is
required (plans were tested against the lower one), or if looser objectives allow a cheaper plan. A
lower cost limit that the present plan keeps needs no search.
"""

from collections.abc import Sequence

from schemas.records import Session, SessionChoice


def complies(plan: SessionChoice, session: Session) -> bool:
    """Return whether a plan meets a session's objectives by its known figures."""
    dear = session.usd_per_h is not None and plan.usd_per_h > session.usd_per_h
    wrong = plan.accuracy is not None and plan.accuracy < (session.accuracy or 0.0)
    return plan.latency_s <= session.slo_s and not dear and not wrong


def kept_plans(session: Session, present: Sequence[SessionChoice]) -> tuple[SessionChoice, ...]:
    """Return the plans that a session keeps: those that meet its objectives, and the ``present``
    one in use. A hand-made plan is always kept."""
    if not session.samples:
        return session.plans
    return tuple(plan for plan in session.plans if complies(plan, session) or plan in present)


def search_reason(before: Session, after: Session, present: Sequence[SessionChoice]) -> str:
    """Return why changed objectives of a session require a search, or "".

    ``present`` is the plan in use, or empty. Sessions with a hand-made plan are not searched.
    """
    if not after.samples:
        return ""
    plans = present or kept_plans(after, ())
    if not plans or not complies(plans[0], after):
        return "none of its plans meets its new objectives"
    least, asked = before.accuracy or 0.0, after.accuracy or 0.0
    if asked > least:
        return "its accuracy objective was raised"
    looser = after.slo_s > before.slo_s or asked < least
    return "its new objectives allow cheaper plans" if looser and plans[0].usd_per_h > 0 else ""
