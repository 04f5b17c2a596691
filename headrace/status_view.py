"""A snapshot of a pipeline as a table for a terminal."""

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.status import Snapshot, VariantRow

COLUMNS = (
    "task", "variant", "workers", "slots", "lag", "queued", "in/s", "done/s", "dropped/s",
    "failed/s", "batch", "busy",
)  # fmt: skip


def view(snapshot: Snapshot) -> Any:
    """Head, variants, and what is wrong, for rich."""
    parts = [Text(line) for line in head(snapshot)]
    parts += [Text(line, style="bold red") for line in troubles(snapshot)]
    return Group(*parts, _variants(snapshot))


def head(snapshot: Snapshot) -> list[str]:
    """What holds for the whole pipeline, in two lines."""
    if snapshot.epoch is None:
        return [f"{snapshot.pipeline}: no plan yet"]
    return [
        f"{snapshot.pipeline}  plan {snapshot.epoch}  policy {snapshot.policy}  "
        f"SLO {snapshot.slo_ms:g} ms  demand {_number(snapshot.demand_qps)}/s  "
        f"capacity {_number(snapshot.capacity_qps)}/s  "
        f"expected accuracy {_number(snapshot.expected_accuracy, 3)}",
        f"queries/s: {snapshot.arrived_qps:.1f} in, {snapshot.answered_qps:.1f} answered, "
        f"{snapshot.late_qps:.1f} late, {snapshot.dropped_qps:.1f} dropped, "
        f"{snapshot.failed_qps:.1f} failed, {snapshot.refused_qps:.1f} refused; "
        f"mean latency {_number(snapshot.latency_ms)} ms",
    ]


def troubles(snapshot: Snapshot) -> list[str]:
    """What a person should look at."""
    found = []
    if not snapshot.nodes:
        found.append("no node reports; `headrace up FILE` starts them")
    if snapshot.paused:
        found.append("paused: queries are refused; `headrace resume FILE` lets them in")
    if snapshot.feasible is False:
        found.append(f"the plan is not feasible: {snapshot.binding}")
    found += [
        f"{node.name} is {node.state}"
        for node in snapshot.nodes
        if node.state not in ("ready", "idle")
    ]
    return found


def _variants(snapshot: Snapshot) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if at < 2 else "right", no_wrap=True)
    shown: set[str] = set()
    for row in snapshot.variants:
        table.add_row(*_cells(row, first=row.task not in shown))
        shown.add(row.task)
    return table


def _cells(row: VariantRow, *, first: bool) -> list[Text]:
    lag = "-" if row.lag is None else str(row.lag)
    cells = [
        row.task if first else "", row.variant, str(row.workers), str(row.slots),
        # The lag is the task's, whichever variant will take it.
        lag if first else "", str(row.queued), f"{row.arrived_qps:.1f}",
        f"{row.finished_qps:.1f}", f"{row.dropped_qps:.1f}", f"{row.failed_qps:.1f}",
        _number(row.batch), "-" if row.busy is None else f"{100 * row.busy:.0f} %",
    ]  # fmt: skip
    wrong = row.dropped_qps > 0 or row.failed_qps > 0
    return [Text(cell, style="red" if wrong and 8 <= at <= 9 else "") for at, cell in
            enumerate(cells)]  # fmt: skip


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
