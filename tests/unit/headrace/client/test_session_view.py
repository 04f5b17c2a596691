"""A session as ``headrace session list|show --json`` prints it."""

from pathlib import Path

import pytest

from headrace.client.session_view import (
    candidates,
    details,
    plan_in,
    row,
    sessions_text,
    without_plan,
)
from headrace.errors import PipelineError
from schemas.enumerations import SessionState
from schemas.records import Session, SessionChoice


def a_session(**changes: object) -> Session:
    usual = {"id": "cam", "pipeline": "planned", "state": SessionState.SERVING, "slo_s": 0.2}
    return Session(**{**usual, **changes})  # type: ignore[arg-type]


def test_the_accuracy_names_its_samples_and_their_source() -> None:
    counts = {"answered": 9.0, "late": 1.0, "labels": 8.0, "score": 6.0}
    found = row(a_session(), counts)
    assert found["accuracy"] == {"measured": 0.75, "samples": 8, "source": "labels"}
    assert row(a_session(), {})["accuracy"] == {"measured": None, "samples": 0, "source": None}
    assert "  measured: accuracy 0.750 by 8 labels" in details(found)


def test_a_list_of_sessions_names_its_columns() -> None:
    waiting = a_session(id="desk", state=SessionState.WAITING, reason="no device is free")
    head, first, second = sessions_text(
        [row(a_session(), {"answered": 3.0}), row(waiting, {})]
    ).splitlines()
    assert head.split()[:4] == ["session", "state", "SLO", "in"]
    assert first.split()[:5] == ["cam", "serving", "200", "ms", "100.0"]
    assert second.endswith("no device is free")
    assert sessions_text([]) == "no session is open"


def test_candidates_differ_by_their_tiers_and_shares() -> None:
    """The lines of plans with equal settings differed in their cost only."""
    settings, tiers = {"scan": "scan/s", "read": "read/r"}, {"scan": "handheld", "read": "depot"}
    first, second = candidates(
        [
            SessionChoice(
                settings=settings, tiers=tiers, quarters={"scan": 0, "read": quarters},
                latency_s=latency_s, usd_per_h=0.0125 * quarters,
            )
            for quarters, latency_s in ((1, 0.08), (4, 0.05))
        ]
    )  # fmt: skip
    assert first == "  0.013 $/h, 80 ms: scan/s on handheld, read/r on depot (25 % of depot)"
    assert second == "  0.050 $/h, 50 ms: scan/s on handheld, read/r on depot (100 % of depot)"


def test_seconds_until_planned_and_served_are_none_until_then() -> None:
    found = row(a_session(planned_s=1.5, serving_s=2.0), {})
    assert (found["planned_s"], found["serving_s"]) == (1.5, 2.0)
    assert "  first served 2.0 s after it was opened" in details(found)
    found = row(a_session(), {})
    assert (found["planned_s"], found["serving_s"]) == (None, None)


@pytest.mark.parametrize(
    ("state", "plans", "ended"),
    [
        (SessionState.OPENING, 0, False),
        (SessionState.SEARCHING, 0, False),
        (SessionState.WAITING, 1, False),  # for devices
        (SessionState.WAITING, 0, True),
    ],
)
def test_a_session_is_waited_for_until_its_search_ends_without_a_plan(
    state: SessionState, plans: int, ended: bool
) -> None:
    """A search that ended for want of samples was waited for until the time was over."""
    choices = (SessionChoice(settings={}, tiers={}, quarters={}),) * plans
    assert without_plan(a_session(state=state, plans=choices, stopped="")) is ended


@pytest.mark.parametrize(
    "written",
    ["[" * 100_000, "{", "\x80", '{"shares": {"a": 1, "a": 2}}'],
    ids=["deep", "cut", "no UTF-8", "a name twice"],
)
def test_plan_file_that_is_no_json_is_refused_in_one_sentence(tmp_path: Path, written: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(written.encode("latin-1"))
    with pytest.raises(PipelineError, match=r"plan\.json is no JSON"):
        plan_in(path)
