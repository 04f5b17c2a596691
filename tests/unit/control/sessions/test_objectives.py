"""Effects of changed objectives of an open session."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from control.sessions.objectives import complies, kept_plans, search_reason
from schemas.enumerations import SessionState
from schemas.records import Session, SessionChoice


def a_plan(ms: float, accuracy: float | None, usd: float) -> SessionChoice:
    return SessionChoice(
        settings={"read": f"read/{ms}"}, tiers={"read": "cloud"}, quarters={"read": 1},
        latency_s=ms / 1e3, accuracy=accuracy, usd_per_h=usd,
    )  # fmt: skip


CHEAP, FINE, DEAR = a_plan(90, 0.9, 0.1), a_plan(60, 0.95, 0.2), a_plan(20, 0.97, 0.4)
FREE = a_plan(80, 0.92, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class To:
    ms: float = 100
    accuracy: float | None = 0.88
    usd: float | None = 0.3


def a_session(to: To, samples: str = "workload@0") -> Session:
    return Session(
        id="a", pipeline="p", state=SessionState.SERVING, slo_s=to.ms / 1e3, accuracy=to.accuracy,
        usd_per_h=to.usd, samples=samples, plans=(CHEAP, FINE, DEAR),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("to", "present", "reason"),
    [
        (To(ms=95), CHEAP, ""),
        (To(ms=80), CHEAP, "none of its plans meets its new objectives"),
        (To(usd=0.15), CHEAP, ""),
        (To(usd=0.05), CHEAP, "none of its plans meets its new objectives"),
        (To(usd=None), FINE, ""),
        (To(accuracy=0.89), CHEAP, "its accuracy objective was raised"),
        (To(accuracy=0.96), FINE, "none of its plans meets its new objectives"),
        (To(accuracy=0.8), CHEAP, "its new objectives allow cheaper plans"),
        (To(ms=200), CHEAP, "its new objectives allow cheaper plans"),
        (To(ms=200, accuracy=0.5), FREE, ""),
    ],
)
def test_search_runs_only_if_it_may_change_the_plan(
    to: To, present: SessionChoice, reason: str
) -> None:
    assert search_reason(a_session(To()), a_session(to), (present,)) == reason


def test_waiting_session_uses_its_existing_plans() -> None:
    assert search_reason(a_session(To()), a_session(To(ms=70)), ()) == ""
    assert search_reason(a_session(To()), a_session(To(ms=10)), ()).startswith("none of its plans")


def test_manual_plan_is_kept_under_any_objectives() -> None:
    after = a_session(To(ms=1, accuracy=1.0, usd=0.0), samples="")
    assert search_reason(a_session(To(), samples=""), after, (CHEAP,)) == ""
    assert kept_plans(after, ()) == (CHEAP, FINE, DEAR)


objectives = st.builds(
    To,
    ms=st.floats(1, 200),
    accuracy=st.none() | st.floats(0, 1),
    usd=st.none() | st.floats(0, 1),
)


@given(objectives, objectives, st.sampled_from([(), (CHEAP,), (FINE,), (DEAR,)]))
def test_without_a_search_a_plan_that_meets_the_objectives_is_kept(
    before: To, after: To, present: tuple[SessionChoice, ...]
) -> None:
    asked = a_session(after)
    plans = kept_plans(asked, present)
    assert all(complies(plan, asked) or plan in present for plan in plans)
    if not search_reason(a_session(before), asked, present):
        assert complies((present or plans)[0], asked)


@given(objectives)
def test_equal_objectives_need_no_search(to: To) -> None:
    session = a_session(to)
    plans = kept_plans(session, ())
    assert not plans or search_reason(session, replace(session), plans[:1]) == ""
