"""The status board: rates from growing counts, silence, restarts, and its display."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest
from msgspec.structs import replace
from rich.console import Console

from headrace.status.snapshot import GONE_S, Board, DeviceRow, NodeRow, VariantRow, board_of
from headrace.status.status_text import head, troubles, view
from headrace.terminal import rich_console
from operators.egress.latency_histogram import bucket
from schemas.pipeline import Pipeline, Policy, Task, Variant
from schemas.pipeline_fingerprint import fingerprint
from schemas.records import Lease, Plan, Report, Settings, SlotState

PIPELINE = Pipeline(
    name="words",
    slo_s=1.0,
    tasks=(
        Task(
            name="shout",
            variants=(
                Variant(task="shout", name="careful", operator="a:B"),
                Variant(task="shout", name="hasty", operator="a:C"),
            ),
        ),
    ),
    policies=(Policy(name="static"),),
    policy="static",
)
PLAN = Plan(
    pipeline="words",
    epoch=3,
    issued_s=0.0,
    reason="",
    settings=Settings(policy="static", slo_s=0.25),
    leases=(
        Lease(worker="cpu-0", task="shout", variant="careful", batch=8, slots=(0, 1), open_slot=0),
    ),
    demand_qps=12.0,
    capacity_qps=80.0,
)


def worker(sent_s: float, counts: Mapping[str, float], incarnation: float = 1.0) -> Report:
    return Report(
        node="cpu-0", role="worker", pipeline="words", epoch=3, incarnation=incarnation,
        sent_s=sent_s, state="ready", device="cpu", task="shout", variant="careful",
        slots=(SlotState("shout", 0, 5, 2), SlotState("shout", 1, 5, 1)), counts=counts,
    )  # fmt: skip


def counts(arrived: float, finished: float, batches: float, busy_s: float) -> dict[str, float]:
    return {
        "arrived/shout/careful": arrived, "finished/shout/careful": finished,
        "batches/shout/careful": batches, "busy_s/shout/careful": busy_s,
    }  # fmt: skip


def egress(
    sent_s: float,
    answered: float,
    late: float,
    latencies: Mapping[str, float] = MappingProxyType({}),
) -> Report:
    return Report(
        node="egress-0", role="egress", pipeline="words", epoch=3, incarnation=1.0, sent_s=sent_s,
        state="ready", counts={"answered": answered, "late": late, **latencies},
    )  # fmt: skip


def test_rates_are_what_counts_grew_by_over_the_window() -> None:
    board = board_of(PIPELINE)
    board.see([PLAN, worker(10.0, counts(100, 90, 20, 5.0)), worker(12.0, counts(140, 126, 29, 6))])
    (row,) = board.snapshot(12.1, {"shout": 7}).variants
    assert row == VariantRow(
        task="shout", variant="careful", workers=1, slots=1, lag=7, queued=3, arrived_qps=20.0,
        finished_qps=18.0, dropped_qps=0.0, failed_qps=0.0, batch=4.0, busy=0.5,
    )  # fmt: skip


def test_a_restarted_node_begins_anew_and_its_old_life_is_not_heard_again() -> None:
    board = board_of(PIPELINE)
    old, new = counts(1000, 1000, 10, 1.0), counts(0, 0, 0, 0.0)
    board.see([PLAN, worker(10.0, old), worker(10.5, new, 2.0), worker(10.6, old, 1.0)])
    board.see([worker(11.5, counts(10, 10, 5, 0.1), 2.0)])
    (row,) = board.snapshot(11.6).variants
    assert (row.arrived_qps, row.workers) == (10.0, 1)


def test_after_a_clock_is_set_back_rates_are_of_the_new_time_and_old_reports_go() -> None:
    board = board_of(PIPELINE)
    board.see([PLAN, *(worker(5000.0 + at, counts(10.0 * at, 0, 0, 0)) for at in range(3))])
    board.see([worker(100.0 + at, counts(30.0 + 10.0 * at, 0, 0, 0)) for at in range(10)])
    (row,) = board.snapshot(109.0).variants
    assert row.arrived_qps == 10.0
    assert len(board._nodes["cpu-0"]) == 4  # all of them were kept until the old time was reached


def test_a_node_that_restarts_after_its_clock_was_set_back_is_shown_within_seconds() -> None:
    board = board_of(PIPELINE)
    board.see([PLAN, worker(5000.0, counts(1000, 0, 0, 0), 4000.0)])
    board.see([worker(100.0 + at, counts(10.0 * at, 0, 0, 0), 99.0) for at in range(4)])
    (row,) = board.snapshot(103.1).variants
    assert (row.workers, row.arrived_qps) == (1, 10.0)


def test_late_reports_of_a_replaced_process_stay_unheard_while_its_successor_reports() -> None:
    board = board_of(PIPELINE)
    for at in range(10):
        board.see([worker(10.0 + at, counts(5 * at, 0, 0, 0), 2.0)])
        board.see([worker(10.0 + at, counts(9 * at, 0, 0, 0), 1.0)])
    assert board.reports()["cpu-0"].incarnation == 2.0


def test_a_silent_node_is_gone() -> None:
    board = board_of(PIPELINE)
    board.see([PLAN, worker(10.0, {}), egress(12.0, 0, 0)])
    snapshot = board.snapshot(12.1)
    assert [row.workers for row in snapshot.variants] == [0]
    assert snapshot.nodes == (
        NodeRow(name="egress-0", role="egress", state="ready", device="", serves="", epoch=3,
                age_s=0.1),
    )  # fmt: skip


def test_latencies_are_those_of_the_window_late_ones_too() -> None:
    board = board_of(PIPELINE)
    before, after = {bucket(0.01): 100.0}, {bucket(0.01): 116.0, bucket(2.1): 4.0}
    board.see([PLAN, egress(10.0, 100, 0, before), egress(12.0, 116, 4, after)])
    snapshot = board.snapshot(12.0)
    assert (snapshot.answered_qps, snapshot.late_qps) == (8.0, 2.0)
    assert (snapshot.p50_ms, snapshot.p95_ms) == (
        pytest.approx(10, rel=0.1),
        pytest.approx(2100, rel=0.1),
    )


def test_why_queries_got_no_answer_is_reported_the_most_frequent_first() -> None:
    board = board_of(PIPELINE)
    reasons = {"failed/operator": 2.0, "dropped/past_saving": 4.0, "refused/paused": 7.0}
    before = {"refused/paused": 7.0}  # from long ago
    board.see([PLAN, *(replace(egress(at, 0, 0), counts=told)
                       for at, told in ((10.0, before), (12.0, reasons)))])  # fmt: skip
    snapshot = board.snapshot(12.0)
    assert list(snapshot.reasons.items()) == [
        ("dropped/past_saving", 2.0),
        ("failed/operator", 1.0),
    ]
    assert head(snapshot)[2] == "not answered/s: 2.0 dropped past saving, 1.0 failed operator"


def test_the_cost_is_that_of_the_workers_that_report() -> None:
    board = board_of(PIPELINE, {"cpu": 0.36, "cuda:0": 3.0})
    spare = replace(worker(12.0, {}), node="cpu-1", state="idle", variant="", slots=())
    board.see([PLAN, worker(12.0, {}), spare, egress(10.0, 100, 0), egress(12.0, 300, 0)])
    snapshot = board.snapshot(12.0)
    assert snapshot.usd_per_h == pytest.approx(0.72)
    assert snapshot.usd_per_1000_answers == pytest.approx(0.72 / 3600 / 100 * 1000)
    assert head(snapshot)[2] == "cost: 0.720 $ an hour, 0.00200 $ per 1000 answers"
    assert board_of(PIPELINE).snapshot(12.0).usd_per_h is None


def test_devices_are_counted_by_name_and_idle_workers_lower_the_share() -> None:
    board = board_of(PIPELINE)
    idle = replace(worker(12.0, {}), node="cpu-1", state="idle", variant="", slots=())
    gpu = replace(worker(12.0, {}), node="gpu-0", device="cuda:0", state="loading", variant="")
    board.see([PLAN, worker(10.0, counts(0, 0, 0, 0.0)), worker(12.0, counts(9, 9, 9, 1.0)), idle,
               gpu])  # fmt: skip
    snapshot = board.snapshot(12.0)
    assert snapshot.devices == (
        DeviceRow(device="cpu", workers=2, ready=1, serves=("shout/careful",), busy=0.25),
        DeviceRow(device="cuda:0", workers=1, ready=0, serves=(), busy=0.0),
    )
    assert (snapshot.workers, snapshot.busy) == (3, 0.5 / 3)


def test_without_the_pipeline_file_the_plan_names_the_variants() -> None:
    board, bare = board_of(PIPELINE), Board("words")
    for each in (board, bare):
        each.see([PLAN, worker(10.0, counts(0, 0, 0, 0)), worker(12.0, counts(40, 36, 9, 1.0))])
    assert bare.snapshot(12.1) == board.snapshot(12.1)


def test_other_pipelines_and_older_plans_are_passed_over() -> None:
    board = board_of(PIPELINE)
    foreign = replace(PLAN, pipeline="other", epoch=9)
    older = replace(PLAN, epoch=2)
    board.see([PLAN, older, foreign, "noise"])
    assert board.snapshot(0.0).epoch == 3


def test_without_a_plan_the_board_says_so() -> None:
    snapshot = board_of(PIPELINE).snapshot(0.0)
    assert head(snapshot) == ["words: no plan yet"]
    assert troubles(snapshot) == [
        "no node is reporting; start the pipeline with `headrace up FILE`"
    ]


def test_the_table_reads_well_without_a_terminal() -> None:
    board = board_of(PIPELINE)
    board.see([PLAN, worker(10.0, counts(0, 0, 0, 0.0)), worker(12.0, counts(40, 36, 9, 1.0))])
    console = rich_console()
    with console.capture() as captured:
        console.print(view(board.snapshot(12.1, {"shout": 7})))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert lines == [
        "words  plan 3  policy static  SLO 250 ms  planned for 12.0/s  capacity 80.0/s"
        "  expected accuracy -",
        "queries/s: 0.0 in, 0.0 answered, 0.0 late, 0.0 dropped, 0.0 failed, 0.0 refused;"
        " latency p50 -, p95 -, p99 - ms",
        "task   variant  workers  slots  lag  queued  in/s  done/s  dropped/s  failed/s  batch"
        "  busy",
        "shout  careful        1      1    7       3  20.0    18.0        0.0       0.0    4.0"
        "  50 %",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_on_a_narrow_terminal_columns_go_and_no_number_is_cut(width: int) -> None:
    board = board_of(PIPELINE)
    board.see([PLAN, worker(10.0, counts(0, 0, 0, 0.0)), worker(12.0, counts(4e4, 36, 9, 1.0))])
    console = Console(width=width)
    with console.capture() as captured:
        console.print(view(board.snapshot(12.1, {"shout": 7}), width))
    heads, row = [line.split() for line in captured.get().splitlines()[-2:]]
    assert heads[:2] == ["task", "variant"]
    assert {"workers", "done/s", "busy"} <= set(heads)
    assert len(row) == len(heads) + 1  # "50 %" has a blank
    assert "…" not in captured.get()


def test_nodes_that_come_and_go_for_months_are_forgotten() -> None:
    """Every rented worker has a new name; a dashboard kept the last reports of all of them."""
    board = Board("words")
    for minute in range(1000):
        for incarnation in (2.0, 1.0):  # the second is a late report of a replaced process
            report = worker(60.0 * minute, {}, incarnation)
            board.see((replace(report, node=f"cpu-{minute}"),))
        board.snapshot(60.0 * minute)
    assert len(board.reports()) == len(board._earlier) == GONE_S / 60 + 1


def test_nodes_that_run_another_file_than_the_one_shown_are_named() -> None:
    """Who edits a running pipeline's file learns that no role has read it again."""
    board = board_of(PIPELINE)
    same = replace(worker(10.0, {}), file=fingerprint(PIPELINE))
    old = replace(worker(10.0, {}), node="cpu-1")  # of a release that does not say
    board.see([PLAN, same, old])
    assert board.snapshot(10.0).other_file == ()
    board.see([replace(same, sent_s=10.2, file="another")])
    snapshot = board.snapshot(10.2)
    assert snapshot.other_file == ("cpu-0",)
    assert troubles(snapshot) == [
        "cpu-0 does not run this state of the pipeline file: a role reads it only at its start; "
        "restart it, or restore the file"
    ]
    board.see([replace(same, node="cpu-1", sent_s=10.4, file="another")])
    assert troubles(board.snapshot(10.4))[0].startswith("cpu-0, cpu-1 do not run this state ")
