"""The single value that the page shows: complete, JSON, and without private data."""

import msgspec
from msgspec.structs import replace

from headrace.dashboard.late_queries import SHOWN, LateQueries
from headrace.dashboard.pipeline_history import PipelineHistory
from headrace.dashboard.pipeline_view import pipeline_view
from headrace.status.snapshot import board_of
from schemas.enumerations import SessionState
from schemas.records import Lease, Report, Session, SlotState
from tests.builders import a_hop, a_pipeline, a_plan, an_answer

PIPELINE = a_pipeline()
ROOT = PIPELINE.root.name


def a_history() -> PipelineHistory:
    variant = PIPELINE.root.variants[0].name
    lease = Lease(worker="cpu-0", task=ROOT, variant=variant, batch=4, slots=(2,), open_slot=2)
    plan = a_plan([lease], epoch=7, pipeline=PIPELINE.name, feasible=False, binding="no device")
    report = Report(
        node="cpu-0", role="worker", pipeline=PIPELINE.name, epoch=7, incarnation=1.0,
        sent_s=100.0, state="ready", device="cpu", task=ROOT, variant=variant,
        slots=(SlotState(ROOT, 2, 5, 3),), counts={"session/s-1/answered": 9.0},
    )  # fmt: skip
    history = PipelineHistory(board_of(PIPELINE, {"cpu": 0.5}))
    history.see([plan, report], now=100.0)
    history.waiting = {(ROOT, 2): 11}
    history.reach(101.0)
    return history


def test_a_view_is_json_and_says_what_binds_what_waits_and_what_it_costs() -> None:
    session = Session(
        id="s-1", pipeline=PIPELINE.name, state=SessionState.SERVING, slo_s=0.2, opened_s=90.0
    )
    view = pipeline_view(PIPELINE, a_history(), [session], [], now=100.5)
    read = msgspec.json.decode(msgspec.json.encode(view))
    now = read["now"]
    assert (now["epoch"], now["feasible"], now["binding"]) == (7, False, "no device")
    assert now["usd_per_h"] == 0.5
    assert "the plan is not feasible: no device" in read["troubles"]
    slot = read["slots"][0]
    assert (slot["worker"], slot["open"], slot["held"], slot["waiting"]) == ("cpu-0", True, 3, 11)
    assert read["devices"][0]["usd_per_h"] == 0.5
    assert read["sessions"][0]["queries"] == {"answered": 9.0}
    assert [len(row) for row in read["rates"]] == [1 + len(read["figures"])]


def test_a_silent_node_stays_on_the_page_as_a_trouble() -> None:
    history = a_history()
    history.reach(106.0)
    view = pipeline_view(PIPELINE, history, [], [], now=106.0)
    assert view["nodes"][0]["state"] == "silent"
    assert "cpu-0 is silent" in view["troubles"]


def test_while_the_broker_is_away_the_page_does_not_ask_to_start_the_pipeline() -> None:
    """It showed "no node is reporting; start the pipeline" and a line for each silent node."""
    history = a_history()
    more = replace(history.board.reports()["cpu-0"], node="cpu-1")
    history.see([more], now=101.0)
    history.reach(106.0)
    view = pipeline_view(PIPELINE, history, [], [], now=106.0, broker="the broker is away")
    assert view["troubles"] == [
        "the broker is away", "the plan is not feasible: no device", "cpu-0, cpu-1 are silent"
    ]  # fmt: skip


def test_a_moment_without_news_changes_no_section() -> None:
    history = a_history()
    first = pipeline_view(PIPELINE, history, [], [], now=100.2)
    assert pipeline_view(PIPELINE, history, [], [], now=100.4) == first


def test_late_queries_are_the_newest_and_bear_no_result() -> None:
    late = LateQueries()
    hop = a_hop(worker="cpu-0")
    base = an_answer(late=True, result="secret", paths=((hop,),))
    late.see([replace(base, id=f"q{at}") for at in range(SHOWN + 3)])
    late.see([replace(base, id="in time", late=False)])
    rows = late.rows()
    assert [row["id"] for row in rows] == [f"q{at}" for at in range(SHOWN + 2, 2, -1)]
    assert {row["outcome"] for row in rows} == {"late"}
    assert "secret" not in msgspec.json.encode(rows).decode()
    assert rows[0]["stages"][0]["workers"] == ["cpu-0"]
