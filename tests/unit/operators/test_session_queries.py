"""Why queries of sessions are refused."""

import pytest

from operators.drop_reasons import no_sessions
from operators.session_queries import SessionQueries
from schemas.enumerations import ReasonCode
from schemas.records import Settings
from schemas.release import RELEASE
from tests.builders import a_plan
from tests.session_world import a_query_plan, a_session_pipeline

PIPELINE = a_session_pipeline()
SETTINGS = Settings(policy="compass", slo_s=1.0)


def test_a_plan_for_a_node_that_knows_no_sessions_refuses_every_session_for_that_reason() -> None:
    queries = SessionQueries()
    queries.change(a_plan(settings=SETTINGS), PIPELINE)  # as written in the release before
    refused = queries.refusal("cam")
    assert refused == no_sessions("scan")
    assert "upgrade" in refused.text
    nameless = queries.refusal("")
    assert nameless is not None
    assert nameless.code is ReasonCode.BAD_INPUT


@pytest.mark.parametrize(("session", "refused"), [("cam", None), ("other", ReasonCode.BAD_INPUT)])
def test_a_session_that_is_not_open_is_bad_input(session: str, refused: ReasonCode | None) -> None:
    queries = SessionQueries()
    plans = (a_query_plan("cam"),)
    queries.change(a_plan(settings=SETTINGS, sessions=plans, release=RELEASE), PIPELINE)
    found = queries.refusal(session)
    assert (found and found.code) == refused
