"""benchmarks/session_faults: every broken promise to a session is detected."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from benchmarks.chaos_account import Record
from benchmarks.session_faults.__main__ import EVERY, LOST_WORKER, Met, remaining
from benchmarks.session_faults.session_account import SessionRecord, broken_promises
from benchmarks.session_faults.session_phases import FAULTS, PHASES, SCENARIOS
from benchmarks.session_faults.session_pipeline import BLOCK, SampleRun, runs_in, sample_of
from schemas.enumerations import SessionState
from schemas.records import ProfileRequest, ProfileResult, Session, SessionPlan
from tests.builders import a_plan
from tests.unit.control.sessions.test_session_book import a_choice

OPTIONS = {"scan.scale": "1", "read.votes": "1"}


def a_session(**changes: Any) -> Session:
    usual: dict[str, Any] = {
        "state": SessionState.SERVING, "slo_s": 1.0, "plans": (a_choice("1"),), "chosen": 0,
        "number": 1, "opened_s": 1.0, "planned_s": 3.0, "stopped": "space",
    }  # fmt: skip
    return Session(id="a", pipeline="p", **{**usual, **changes})


def a_query_plan(session: str, *, admits: bool = True) -> SessionPlan:
    return SessionPlan(session=session, number=1, slo_s=1.0, stages=(), admits=admits)


def a_request() -> ProfileRequest:
    return ProfileRequest(
        search="a@1", pipeline="p", space="s", options=OPTIONS, sample_set="workload@1", first=0,
        upto=BLOCK, step=1, expires_s=9.0,
    )  # fmt: skip


def a_result() -> ProfileResult:
    return ProfileResult(
        pipeline="p", space="s", options=OPTIONS, sample_set="workload@1", first=0,
        scores=(1.0,) * BLOCK, seconds={}, bytes={}, cached={}, input_bytes=1.0, spent_s=1.0,
        device="cpu", profiler="profiler-0", finished_s=4.0,
    )  # fmt: skip


def a_run(at_s: float, number: int = 0) -> SampleRun:
    return SampleRun(at_s, 7, sample_of("workload@1", number), "1", "1")


WHOLE = SessionRecord(
    queries=Record(asked={}, plans=[structs.replace(a_plan([]), sessions=(a_query_plan("a"),))]),
    open=["a"],
    written=[
        (1.0, "a", a_session(state=SessionState.SEARCHING, plans=(), chosen=-1, planned_s=None)),
        (4.0, "a", a_session()),
        (1.0, "b", a_session()),
        (5.0, "b", None),
    ],
    requests=[(2.0, a_request())],
    profiles=[(4.0, a_result())],
    runs=[a_run(3.0, number) for number in range(BLOCK)],
)
LATE = [*WHOLE.runs, a_run(4.5)]


def test_a_run_that_keeps_every_promise_has_no_violations() -> None:
    assert broken_promises(WHOLE) == []
    assert broken_promises(replace(WHOLE, runs=LATE, frozen=1, hit=1)) == []


def written(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"written": [*WHOLE.written, *((9.0, "a", a_session(**each)) for each in changes)]}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (written({"state": SessionState.WAITING, "reason": "why"}),
         "every open session is planned: a is waiting: why"),
        (written({"chosen": -1}), "every open session is planned: a serves by no plan of its "
         "search"),
        ({"open": ["a", "b"]}, "every open session is planned: b has no record"),
        ({"written": [*WHOLE.written, (6.0, "b", a_session())]},
         "a closed session stays closed: b was deleted, and has a record: serving"),
        ({"open": []}, "a closed session stays closed: a was closed, and is not deleted"),
        (written({"number": 0}), "no state of a session is forgotten: a had number 1 and has 0"),
        (written({"slo_s": 2.0}), "no state of a session is forgotten: a had slo_s 1.0 and has "
         "2.0"),
        (written({"planned_s": 5.0}), "no state of a session is forgotten: a had planned_s 3.0 "
         "and has 5.0"),
        (written({"plans": ()}), "no state of a session is forgotten: a had plans and has none"),
        ({"requests": [(6.0, a_request())]},
         "no finished block is requested again: a@1 asked for "),
        ({"profiles": [(4.0, structs.replace(a_result(), scores=(), error="it crashed"))]},
         "no configuration is given up: "),
        ({"runs": LATE, "hit": 1}, "no finished block is run again: 1 finished blocks, 0 of "),
        ({"runs": [*WHOLE.runs, a_run(3.5)]}, "only blocks in flight are lost: 1 samples were "),
    ],
)  # fmt: skip
def test_a_broken_promise_is_found(changes: dict[str, Any], sentence: str) -> None:
    found = broken_promises(replace(WHOLE, **changes))
    assert any(each.startswith(sentence) for each in found), found


def test_scenarios_are_of_known_phases_and_faults() -> None:
    assert {phase for phase, _ in SCENARIOS} == PHASES.keys()
    assert {fault for _, fault in SCENARIOS} == FAULTS.keys()
    assert len(set(SCENARIOS)) == len(SCENARIOS)


def test_a_line_of_the_log_that_is_not_whole_is_left_out() -> None:
    assert runs_in(['[1.5, 7, "a1", "1", "3"]\n', '[2.5, 7, "a2"']) == [
        SampleRun(1.5, 7, "a1", "1", "3")
    ]


def test_run_resumes_at_the_scenarios_that_have_not_ended() -> None:
    first, second, *others = EVERY
    ended = [
        Met(phase=phase, fault=fault, whole_s=1.0, outcomes="1 answered")
        for phase, fault in (first, LOST_WORKER)
    ]
    assert remaining("", ended) == [second, *others[:-1]]
    assert remaining("lost worker", []) == [LOST_WORKER]
    assert remaining("lost worker", ended) == []
