"""Searches of sessions: which search a step's result belongs to."""

from msgspec.structs import replace

from control.controller.session_searches import SessionSearches
from control.policies.compass.search.search_step import SearchStep
from control.sessions.session_health import SessionHealth
from schemas.effects import Solve, Solved
from schemas.enumerations import SessionState
from schemas.pipeline import Policy
from schemas.records import Session
from tests.session_world import a_space

POLICY = Policy(name="compass", kind="compass")
SESSION = Session(
    id="a", pipeline="p", state=SessionState.OPENING, slo_s=0.5, accuracy=0.6, samples="workload@0"
)


def test_step_of_a_search_for_old_objectives_is_not_used_in_the_new_search() -> None:
    space = a_space()
    searches, seen = SessionSearches("p", space), SessionHealth(space, 1.0)
    searches.begin([SESSION], seen, POLICY, 1.0)
    (asked,) = searches.advance([SESSION], 1.0)
    assert isinstance(asked, Solve)
    changed = replace(SESSION, accuracy=0.99)
    searches.begin([changed], seen, POLICY, 1.1)
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
