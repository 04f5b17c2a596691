"""Searches of sessions: which search a step's result belongs to."""

import pytest
from msgspec.structs import replace

from control.controller.session_searches import MOST_BEGUN, SessionSearches
from control.estimation.operator_paces import OperatorPaces
from control.policies.compass.search.camo import Proposal
from control.policies.compass.search.search_step import SearchStep
from control.problem.sample_sets import Truth, first_set
from control.problem.tiers import Link
from control.sessions.session_health import SessionHealth
from schemas.effects import Solve, Solved
from schemas.enumerations import SessionState
from schemas.pipeline import Policy
from schemas.records import ProfileResult, Session
from tests.session_world import a_space

POLICY = Policy(name="compass", kind="compass")
SESSION = Session(
    id="a", pipeline="p", state=SessionState.OPENING, slo_s=0.5, accuracy=0.6, samples="workload@0"
)


def test_step_of_a_search_for_old_objectives_is_not_used_in_the_new_search() -> None:
    space = a_space()
    searches, seen = SessionSearches("p", space), SessionHealth(space, 1.0)
    searches.begin([SESSION], seen, OperatorPaces(space), POLICY, 1.0)
    (asked,) = searches.advance([SESSION], 1.0)
    assert isinstance(asked, Solve)
    changed = replace(SESSION, accuracy=0.99)
    searches.begin([changed], seen, OperatorPaces(space), POLICY, 1.1)
    (again,) = searches.advance([changed], 1.1)
    assert isinstance(again, Solve)
    assert again.problem.slo.accuracy == 0.99
    ended = SearchStep(proposal=None, plans=(), nearest=None)
    searches.solved(Solved(asked.job, ended), 1.2)
    assert not searches.ended()
    searches.advance([changed], 1.2)
    assert not searches.ended()
    searches.solved(Solved(again.job, ended), 1.3)
    searches.advance([changed], 1.3)
    assert [end.session for end in searches.ended()] == ["a"]


def test_a_search_without_labelled_inputs_is_repeated_once_there_are_some() -> None:
    space = a_space()
    searches, seen = SessionSearches("p", space), SessionHealth(space, 1.0)
    session = replace(SESSION, samples=first_set(Truth.FEEDBACK, 10_000.0))
    proposal = Proposal(configuration=0, placement=0, utility=1.0, origin="own", samples=50)

    def requested(now: float) -> list[int]:
        """Begin a search that proposes configuration 0; return the blocks that it requests."""
        searches.begin([session], seen, OperatorPaces(space), POLICY, now)
        (step,) = searches.advance([session], now)
        assert isinstance(step, Solve)
        proposed = SearchStep(proposal=proposal, plans=(), nearest=None)
        searches.solved(Solved(step.job, proposed), now)
        effects = searches.advance([session], now)
        return [each.record.first for each in effects]  # type: ignore[union-attr]

    blocks = requested(10_000.0)
    empty = ProfileResult(
        pipeline="p", space=space.space.digest, options=space.space.named(0),
        sample_set=session.samples, first=0, scores=(), seconds={}, bytes={}, cached={},
        input_bytes=0.0, spent_s=0.0, device="cpu", profiler="x", finished_s=10_005.0,
    )  # fmt: skip
    searches.take(empty)
    searches.advance([session], 10_005.0)
    (end,) = searches.ended()
    assert "the samples end after 0" in end.reason
    assert requested(10_060.0) == blocks


def test_searches_of_many_sessions_begin_a_few_in_a_turn() -> None:
    """A link that fell for 50 sessions stopped the control app for 7.7 s, and so it began anew."""
    space = a_space()
    searches, seen = SessionSearches("p", space), SessionHealth(space, 1.0)
    sessions = [replace(SESSION, id=f"cam-{number}") for number in range(2 * MOST_BEGUN + 1)]
    for number, session in enumerate(sessions):
        seen.links[session.id] = {("handheld", "cloud"): Link(1e5 + number, 0.01)}
        seen.repriced.add(session.id)
    begun = []
    for turn in range(3):
        searches.begin(sessions, seen, OperatorPaces(space), POLICY, 1.0 + turn)
        begun.append(len(searches.states))
    assert begun == [MOST_BEGUN, 2 * MOST_BEGUN, len(sessions)]


def test_a_profiler_of_another_space_rejects_no_configuration() -> None:
    """Until all profilers were restarted with a changed file, searches ended with worse plans."""
    space = a_space()
    searches, seen = SessionSearches("p", space), SessionHealth(space, 1.0)
    searches.begin([SESSION], seen, OperatorPaces(space), POLICY, 1.0)
    (asked,) = searches.advance([SESSION], 1.0)
    assert isinstance(asked, Solve)
    proposal = Proposal(configuration=0, placement=0, utility=1.0, origin="own", samples=50)
    searches.solved(Solved(asked.job, SearchStep(proposal=proposal, plans=(), nearest=None)), 1.1)
    assert searches.advance([SESSION], 1.1)
    refusal = ProfileResult(
        pipeline="p", space="another", options=space.space.named(0), sample_set=SESSION.samples,
        first=0, scores=(), seconds={}, bytes={}, cached={}, input_bytes=0.0, spent_s=0.0,
        device="cpu", profiler="x", finished_s=1.2, error="x has another search space",
    )  # fmt: skip
    searches.take(refusal)
    assert searches.advance([SESSION], 1.2) == []
    waits = "its search is waiting for a profiler"
    assert searches.states == {"a": f"{waits}: x has another search space"}
    assert searches.advance([SESSION], 20.0)  # it asks again
    searches.take(replace(refusal, space=space.space.digest, scores=(1.0,) * 10, error=""))
    assert searches.states == {"a": waits}


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.0, 3600.0])
def test_a_search_starts_as_before_a_restart_whatever_the_profilers_clock(ahead_s: float) -> None:
    """It knew its own profiles at once if the profiler's clock was behind, and none of the others'
    if it was ahead."""
    space = a_space()
    searches, seen = SessionSearches("p", space), SessionHealth(space, 1.0)
    blocks = [(0, "b@50.000", 60.0), (1, "a@100.000", 110.0), (2, "b@50.000", 120.0)]
    for configuration, search, finished_s in blocks:
        for first in range(0, 50, 10):
            searches.take(
                ProfileResult(
                    pipeline="p", space=space.space.digest,
                    options=space.space.named(configuration), sample_set=SESSION.samples,
                    first=first, scores=(1.0,) * 10, seconds={"scan": 0.04, "read": 0.1},
                    bytes={}, cached={}, input_bytes=0.0, spent_s=0.14, device="cpu",
                    profiler="x", finished_s=finished_s + ahead_s, search=search,
                )
            )  # fmt: skip
    resumed = replace(SESSION, state=SessionState.SEARCHING, changed_s=100.0)
    searches.begin([resumed], seen, OperatorPaces(space), POLICY, 130.0)
    (step,) = searches.advance([resumed], 130.0)
    assert isinstance(step, Solve)
    assert [each.configuration for each in step.problem.learnt] == [0]
