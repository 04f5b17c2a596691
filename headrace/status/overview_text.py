"""Render all pipelines on a broker as tables for a terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.cells import decimal, few, percent
from headrace.status.snapshot import DeviceRow, Snapshot
from headrace.status.status_text import alarm, troubles

SHOWN_DOWN = 5  # a broker for tests keeps the plans of many past pipelines


def view(snapshots: Sequence[Snapshot]) -> Any:
    """Return the tables of pipelines and devices, and the problems, as a rich renderable."""
    up = [snapshot for snapshot in snapshots if snapshot.nodes]
    down = [snapshot.pipeline for snapshot in snapshots if not snapshot.nodes]
    parts: list[Any] = []
    if up:
        note = "rates in queries/s; ms: p95 latency of the SLO"
        parts += [_pipelines(up), Text(note, style="dim"), Text(), _devices(up)]
        parts += [
            Text(f"{snapshot.pipeline}: {line}", style="bold red")
            for snapshot in up
            for line in troubles(snapshot)
        ]
    if not up:
        parts.append(Text("no pipeline is up on this broker; `headrace up FILE` starts one"))
    if down:
        parts.append(Text(_of_the_past(down)))
    return Group(*parts)


def _pipelines(snapshots: Sequence[Snapshot]) -> Table:
    table = _table(
        ("pipeline", "plan", "policy"),
        ("demand", "capacity", "answered", "late", "dropped", "failed", "refused", "ms", "workers",
         "busy"),
    )  # fmt: skip
    for each in snapshots:
        table.add_row(
            Text(each.pipeline),
            Text("-" if each.epoch is None else str(each.epoch)),
            Text(each.policy or "-"),
            Text(decimal(each.demand_qps)),
            Text(decimal(each.capacity_qps)),
            Text(f"{each.answered_qps:.1f}"),
            *(alarm(rate) for rate in (each.late_qps, each.dropped_qps, each.failed_qps)),
            alarm(each.refused_qps),
            Text(f"{decimal(each.p95_ms)} of {decimal(each.slo_ms, 0)}"),
            Text(str(each.workers)),
            Text(percent(each.busy, 0)),
        )
    return table


def _devices(snapshots: Sequence[Snapshot]) -> Table:
    table = _table(("device", "pipeline", "serves"), ("workers", "ready", "busy"))
    rows = sorted(
        ((row, each.pipeline) for each in snapshots for row in each.devices),
        key=lambda pair: (pair[0].device, pair[1]),
    )
    before = ""
    for row, pipeline in rows:
        table.add_row(*_cells(row, pipeline, first=row.device != before))
        before = row.device
    return table


def _cells(row: DeviceRow, pipeline: str, *, first: bool) -> list[Text]:
    return [
        Text(row.device if first else ""),
        Text(pipeline),
        Text(", ".join(row.serves) or "-"),
        Text(str(row.workers)),
        Text(str(row.ready)),
        Text(percent(row.busy, 0)),
    ]


def _table(left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _of_the_past(names: Sequence[str]) -> str:
    return f"not running: {few(names, SHOWN_DOWN)}"
