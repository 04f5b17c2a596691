"""All pipelines on a broker: a board for each, and one table of all."""

from msgspec.structs import replace

from headrace.status.overview_text import view
from headrace.status.snapshot import Board, Snapshot
from headrace.status.watch import Boards
from headrace.terminal import rich_console
from operators.egress.latency_histogram import bucket
from schemas.records import Lease, Plan, Report, Settings

PLAN = Plan(
    pipeline="words", epoch=3, issued_s=0.0, reason="",
    settings=Settings(policy="static", slo_s=0.25), demand_qps=12.0, capacity_qps=80.0,
    leases=(Lease(worker="cpu-0", task="shout", variant="loud", batch=8, slots=(0,), open_slot=0),),
)  # fmt: skip


def worker(pipeline: str, sent_s: float, busy_s: float, device: str = "cpu") -> Report:
    return Report(
        node="cpu-0", role="worker", pipeline=pipeline, epoch=3, incarnation=1.0, sent_s=sent_s,
        state="ready", device=device, task="shout", variant="loud",
        counts={"busy_s/shout/loud": busy_s},
    )  # fmt: skip


def egress(pipeline: str, sent_s: float, answered: float, refused: float) -> Report:
    return Report(
        node="egress-0", role="egress", pipeline=pipeline, epoch=3, incarnation=1.0, sent_s=sent_s,
        state="ready",
        counts={"answered": answered, bucket(0.02): answered, "refused": refused},
    )  # fmt: skip


WORDS = [PLAN, worker("words", 10.0, 0.0), worker("words", 12.0, 1.0),
         egress("words", 10.0, 0, 0), egress("words", 12.0, 20, 0)]  # fmt: skip
LINES = [replace(PLAN, pipeline="lines", epoch=7, feasible=False, binding="add workers"),
         worker("lines", 10.0, 0.0), worker("lines", 12.0, 0.2),
         egress("lines", 10.0, 0, 0), egress("lines", 12.0, 100, 8)]  # fmt: skip
PAST = [replace(PLAN, pipeline=f"old-{number}") for number in range(7)]


def seen(*records: object) -> list[Snapshot]:
    boards = Boards()
    boards.see(records)
    return boards.snapshots(12.0)


def shown(*records: object) -> list[str]:
    console = rich_console()
    with console.capture() as captured:
        console.print(view(seen(*records)))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_pipelines_with_nodes_of_the_same_names_are_kept_apart() -> None:
    mixed = [record for pair in zip(WORDS, LINES, strict=True) for record in pair]
    found = seen(*mixed, "noise", None)
    alone = []
    for name, records in (("lines", LINES), ("words", WORDS)):
        board = Board(name)
        board.see(records)
        alone.append(board.snapshot(12.0))
    assert found == alone


def test_the_table_has_a_row_for_each_and_one_for_each_of_its_devices() -> None:
    assert shown(*WORDS, *LINES, *PAST) == [
        "pipeline  plan  policy  demand  capacity  answered  late  dropped  failed  refused"
        "           ms  workers  busy",
        "lines     7     static    12.0      80.0      50.0   0.0      0.0     0.0      4.0"
        "  21.4 of 250        1  10 %",
        "words     3     static    12.0      80.0      10.0   0.0      0.0     0.0      0.0"
        "  21.4 of 250        1  50 %",
        "rates in queries/s; ms: p95 latency of the SLO",
        "",
        "device  pipeline  serves      workers  ready  busy",
        "cpu     lines     shout/loud        1      1  10 %",
        "        words     shout/loud        1      1  50 %",
        "lines: the plan is not feasible: add workers",
        "not running: old-0, old-1, old-2, old-3, old-4 and 2 more",
    ]


def test_overview_without_running_pipelines_says_none_is_up() -> None:
    assert shown(PAST[0]) == [
        "no pipeline is up on this broker; `headrace up FILE` starts one",
        "not running: old-0",
    ]
