"""Queries of sessions: reasons for refusals, and data sent with them."""

import pytest
from msgspec.structs import replace

from operators.drop_reasons import no_sessions
from operators.ingress.ingress import NOTICE_S, Ingress
from operators.ingress.session_queries import SessionQueries
from operators.serving.outbox import packed
from schemas.effects import OUTPUTS, QUERIES, Arrived, Woke, work_topic
from schemas.enumerations import ReasonCode
from schemas.records import Notice, Query, Settings, Trace, Work
from schemas.release import RELEASE
from tests.builders import a_plan, an_ended, arrived, sent, told
from tests.session_world import a_query_plan, a_session_pipeline

PIPELINE = a_session_pipeline()
SETTINGS = Settings(policy="compass", slo_s=1.0)


def test_a_plan_for_a_node_that_knows_no_sessions_refuses_every_session_for_that_reason() -> None:
    queries = SessionQueries()
    queries.change(a_plan(settings=SETTINGS), PIPELINE)  # as written by the previous release
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


def test_the_trace_context_of_a_query_goes_with_its_work_and_its_notice() -> None:
    trace = Trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    ingress = Ingress("ingress", PIPELINE, range(4), incarnation=0.0)
    plan = a_plan(settings=SETTINGS, sessions=(a_query_plan("cam"),), release=RELEASE)
    told(ingress, (Woke(), 0.0), (arrived(plan), 0.0))
    effects = [
        effect
        for offset, session in enumerate(("cam", "other"))
        for effect in ingress.handle(
            Arrived(Query(payload=b"x", session=session), QUERIES, 0, offset, 1.0, trace), 1.0
        )
    ]
    (work,) = sent(effects, work_topic("scan"))
    assert isinstance(work, Work)
    (out,) = sent(packed([(work, "", an_ended())], {}, 1, 2), OUTPUTS)
    assert isinstance(out, Work)
    assert (work.trace, out.trace, out.session) == (trace, trace, a_query_plan("cam"))
    (notice,) = sent(ingress.handle(Woke(), 1.0 + NOTICE_S), OUTPUTS)
    assert isinstance(notice, Notice)
    assert [(each.trace, bool(each.refused)) for each in notice.queries] == [
        (trace, False), (trace, True),
    ]  # fmt: skip


def test_a_querys_deadline_and_notice_are_those_of_its_session() -> None:
    ingress = Ingress("ingress", PIPELINE, range(4), incarnation=0.0)
    session = replace(a_query_plan("cam"), slo_s=2.0)
    plan = a_plan(settings=SETTINGS, sessions=(session,), release=RELEASE)
    told(ingress, (Woke(), 0.0), (arrived(plan), 0.0))
    query = Query(payload=b"x", session="cam")
    (work,) = sent(ingress.handle(Arrived(query, QUERIES, 0, 0, 1.0), 1.0), work_topic("scan"))
    assert isinstance(work, Work)
    assert work.deadline_s == 3.0
    (notice,) = sent(ingress.handle(Woke(), 1.0 + NOTICE_S), OUTPUTS)
    assert isinstance(notice, Notice)
    assert [(each.session, each.deadline_s) for each in notice.queries] == [("cam", 3.0)]
