"""Render a snapshot of a pipeline as a table for a terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from control.estimation.accuracy.accuracy_drift import drift_text
from headrace.cells import decimal, percent
from headrace.results.label_accuracy import NO_CLASS, AccuracyFigure
from headrace.results.shadow_figures import shadow_text
from headrace.status.snapshot import Snapshot, VariantRow
from schemas.enumerations import NodeState

COLUMNS = (
    "task", "variant", "workers", "slots", "lag", "queued", "in/s", "done/s", "dropped/s",
    "failed/s", "batch", "busy",
)  # fmt: skip


# Columns omitted, in this order, if the terminal is too narrow: no number is ever truncated.
DISPENSABLE = ("slots", "batch", "lag", "in/s", "failed/s", "dropped/s", "queued")
WIDE = 120
NAMED = 6  # nodes in one line


def view(snapshot: Snapshot, width: int = WIDE) -> Any:
    """Return head, problems and variants as a rich renderable, ``width`` characters wide."""
    parts = [Text(line) for line in head(snapshot)]
    parts += [Text(line, style="bold red") for line in troubles(snapshot)]
    return Group(*parts, _variants(snapshot, width))


def head(snapshot: Snapshot) -> list[str]:
    """Return the state of the whole pipeline, in one line without a plan, else two or three."""
    if snapshot.epoch is None:
        return [f"{snapshot.pipeline}: no plan yet"]
    return [
        f"{snapshot.pipeline}  plan {snapshot.epoch}  policy {snapshot.policy}  "
        f"SLO {snapshot.slo_ms:g} ms  planned for {decimal(snapshot.demand_qps)}/s  "
        f"capacity {decimal(snapshot.capacity_qps)}/s  "
        f"expected accuracy {decimal(snapshot.expected_accuracy, 3)}",
        f"queries/s: {snapshot.arrived_qps:.1f} in, {snapshot.answered_qps:.1f} answered, "
        f"{snapshot.late_qps:.1f} late, {snapshot.dropped_qps:.1f} dropped, "
        f"{snapshot.failed_qps:.1f} failed, {snapshot.refused_qps:.1f} refused; "
        f"latency p50 {decimal(snapshot.p50_ms)}, p95 {decimal(snapshot.p95_ms)}, "
        f"p99 {decimal(snapshot.p99_ms)} ms",
        *_cost(snapshot),
        *_reasons(snapshot),
        *_classes(snapshot),
        *_measured(snapshot),
    ]


def _cost(snapshot: Snapshot) -> list[str]:
    """Return a line with the cost of the workers, if they have prices."""
    if snapshot.usd_per_h is None:
        return []
    each = decimal(snapshot.usd_per_1000_answers, 5)
    return [f"cost: {snapshot.usd_per_h:.3f} $ an hour, {each} $ per 1000 answers"]


def _reasons(snapshot: Snapshot) -> list[str]:
    """Return a line with the rates of queries without an answer by reason, if there are any."""
    listed = [
        f"{rate:.1f} {name.replace('/', ' ').replace('_', ' ')}"
        for name, rate in snapshot.reasons.items()
    ]
    return [f"not answered/s: {', '.join(listed)}"] if listed else []


def _classes(snapshot: Snapshot) -> list[str]:
    """Return a line with the queries per second of each SLO class and the part of them in time."""
    shown = []
    for name, rates in snapshot.classes.items():
        every = sum(rates.values())
        if every > 0:
            part = percent(rates.get("answered", 0.0) / every, 1)
            shown.append(f"{name or NO_CLASS} {every:.1f}, {part} in time")
    return [f"by class/s: {'; '.join(shown)}"] if shown else []


def _measured(snapshot: Snapshot) -> list[str]:
    """Return lines with the accuracy by labels and by shadows, if any, and unused labels."""
    lines = []
    if snapshot.measured is not None:
        classes = snapshot.measured.classes if len(snapshot.measured.classes) > 1 else ()
        figures = (snapshot.measured.overall, *classes, *snapshot.measured.paths)
        lines = [f"measured accuracy: {'; '.join(map(accuracy_text, figures))}"]
    unused = [f"{count:,} {name}" for name, count in snapshot.labels.items()
              if count and name in ("repeated", "unreadable", "failed", "unmatched")]  # fmt: skip
    lines += [f"by shadows: {shadow_text(each)}" for each in snapshot.shadows]
    return [*lines, *([f"labels not counted: {', '.join(unused)}"] if unused else [])]


def accuracy_text(figure: AccuracyFigure) -> str:
    """Return a measured accuracy as text, in per cent with its interval."""
    return (
        f"{figure.name} {percent(figure.accuracy, 2)} ({percent(figure.low, 2)} to "
        f"{percent(figure.high, 2)}, {figure.queries:,} labels)"
    )


NO_NODE = "no node is reporting; start the pipeline with `headrace up FILE`"


def troubles(snapshot: Snapshot) -> list[str]:
    """Return the problems that need attention, a line each."""
    found = []
    if not snapshot.nodes:
        found.append(NO_NODE)
    if snapshot.other_file:
        found.append(_other_file(snapshot.other_file))
    if snapshot.paused:
        found.append("paused: queries are refused; resume with `headrace resume FILE`")
    if snapshot.feasible is False:
        found.append(f"the plan is not feasible: {snapshot.binding}")
    if snapshot.label_trouble:
        found.append(f"labels cannot all be scored: {snapshot.label_trouble}")
    found += [f"accuracy has drifted: {drift_text(each)}" for each in snapshot.drifted]
    found += [
        f"{node.name} is {node.state}{f': {node.error}' if node.error else ''}"
        for node in snapshot.nodes
        if node.error or node.state not in (NodeState.READY, NodeState.IDLE)
    ]
    return found


def named(nodes: Sequence[str]) -> str:
    """Return the names of nodes, or the first ones and how many more there are."""
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return f"{', '.join(nodes[:NAMED])}{more}"


def _other_file(nodes: tuple[str, ...]) -> str:
    verb, them = ("does", "it") if len(nodes) == 1 else ("do", "them")
    return (
        f"{named(nodes)} {verb} not run this state of the pipeline file: "
        f"a role reads it only at its start; restart {them}, or restore the file"
    )


def _variants(snapshot: Snapshot, width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    # The lag column is omitted if the backlog was not queried.
    asked = any(row.lag is not None for row in snapshot.variants)
    names = [name for name in COLUMNS if asked or name != "lag"]
    tasks: set[str] = set()
    rows = []
    for row in snapshot.variants:
        rows.append(_cells(row, first=row.task not in tasks))
        tasks.add(row.task)
    names = _fitting(names, rows, width)
    for name in names:
        table.add_column(name, justify="left" if name in names[:2] else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*(cells[name] for name in names))
    return table


def _fitting(names: list[str], rows: list[dict[str, Text]], width: int) -> list[str]:
    """Return the columns that fit; drop dispensable columns first."""
    needs = {name: max([len(name), *(len(cells[name]) for cells in rows)]) + 2 for name in names}
    for name in DISPENSABLE:
        if sum(needs.values()) - 2 <= width:
            break
        needs.pop(name, None)
    return [name for name in names if name in needs]


def _cells(row: VariantRow, *, first: bool) -> dict[str, Text]:
    return {
        "task": Text(row.task if first else ""),
        "variant": Text(row.variant),
        "workers": Text(str(row.workers)),
        "slots": Text(str(row.slots)),
        # The lag is per task, so it is shown on the task's first row.
        "lag": Text(str(row.lag) if first and row.lag is not None else ""),
        "queued": Text(str(row.queued)),
        "in/s": Text(f"{row.arrived_qps:.1f}"),
        "done/s": Text(f"{row.finished_qps:.1f}"),
        "dropped/s": alarm(row.dropped_qps),
        "failed/s": alarm(row.failed_qps),
        "batch": Text(decimal(row.batch)),
        "busy": Text(percent(row.busy, 0)),
    }


def alarm(rate_qps: float) -> Text:
    """Format a rate that should be 0, in red if it is not."""
    return Text(f"{rate_qps:.1f}", style="red" if rate_qps > 0 else "")
