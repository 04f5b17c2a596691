"""Everything that the page shows of a pipeline, as one JSON value (see docs/how-to/dashboard.md).

Rates are queries or items per second; times are seconds since the epoch; other units are in the
names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from headrace.client.session_view import row as session_row
from headrace.client.session_view import session_counts
from headrace.config.cluster_cost import cost_of
from headrace.dashboard.pipeline_history import FIGURES, PipelineHistory
from headrace.dashboard.plan_flow import plan_flow
from headrace.status.snapshot import Snapshot
from headrace.status.status_text import NO_NODE, named, troubles
from schemas.pipeline import Pipeline
from schemas.records import Report, Session

# Of a snapshot, what the page shows as figures. The rest has sections of its own.
NOW = (
    "epoch", "policy", "slo_ms", "paused", "feasible", "binding", "demand_qps", "capacity_qps",
    "expected_accuracy", "arrived_qps", "answered_qps", "late_qps", "dropped_qps", "failed_qps",
    "refused_qps", "p50_ms", "p95_ms", "p99_ms", "workers", "busy", "usd_per_h",
    "usd_per_1000_answers", "reasons", "classes", "measured",
)  # fmt: skip


def pipeline_view(
    pipeline: Pipeline,
    history: PipelineHistory,
    sessions: Sequence[Session],
    late: Sequence[Mapping[str, Any]],
    now: float,
    broker: str = "",
) -> dict[str, Any]:
    """Return what the page shows of one pipeline at ``now``; ``broker`` is its trouble."""
    board = history.board
    snapshot = board.snapshot(now, _by_task(history.waiting))
    return {
        "pipeline": pipeline.name,
        "tasks": [{"name": task.name, "children": task.children} for task in pipeline.tasks],
        "now": {name: _figure(getattr(snapshot, name)) for name in NOW},
        "troubles": _troubles(snapshot, history.gone(), broker),
        "variants": [_rounded(asdict(row)) for row in snapshot.variants],
        "devices": _devices(snapshot, board.prices),
        "nodes": _nodes(snapshot, history.gone(), board.reports()),
        "slots": _slots(history),
        "flow": plan_flow(pipeline, board.plan),
        "plans": history.plan_rows(),
        "events": list(history.events),
        "sessions": _sessions(sessions, board.reports()),
        "late": list(late),
        "figures": list(FIGURES),
        "rates": list(history.rates),
        "queues": list(history.queues),
    }


def _troubles(snapshot: Snapshot, gone: Sequence[str], broker: str) -> list[str]:
    """Return the problems, a line each. A broker that does not answer is the first, and then no
    node can be heard: that is no reason to start the pipeline."""
    found = [each for each in troubles(snapshot) if not (broker and each == NO_NODE)]
    silent = [f"{named(gone)} {'is' if len(gone) == 1 else 'are'} silent"] if gone else []
    return [*([broker] if broker else []), *found, *silent]


def _by_task(waiting: Mapping[tuple[str, int], int] | None) -> dict[str, int] | None:
    if waiting is None:
        return None
    found: dict[str, int] = {}
    for (task, _), records in waiting.items():
        found[task] = found.get(task, 0) + records
    return found


def _figure(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {name: _figure(each) for name, each in value.items()}
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def _rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _figure(value) for name, value in row.items()}


def _devices(snapshot: Snapshot, prices: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {
            **_rounded(asdict(row)),
            "usd_per_h": cost_of(prices, {row.device: row.workers}) if prices else None,
        }
        for row in snapshot.devices
    ]


def _nodes(
    snapshot: Snapshot, gone: Sequence[str], reports: Mapping[str, Report]
) -> list[dict[str, Any]]:
    """Return the silent nodes, then the reporting ones, without their age, which changes at each
    look."""
    alive = [asdict(replace(node, age_s=0.0)) for node in snapshot.nodes]
    silent = [
        {"name": name, "role": reports[name].role, "state": "silent",
         "device": reports[name].device, "serves": "", "epoch": reports[name].epoch, "error": ""}
        for name in gone
    ]  # fmt: skip
    return [{k: v for k, v in row.items() if k != "age_s"} for row in (*silent, *alive)]


def _slots(history: PipelineHistory) -> list[dict[str, Any]]:
    """Return the plan's leased slots with their workers and backlogs."""
    plan, reports = history.board.plan, history.board.reports()
    waiting = history.waiting or {}
    held = {(s.task, s.slot): s.queued for r in reports.values() for s in r.slots}
    return [
        {
            "task": lease.task,
            "slot": slot,
            "worker": lease.worker,
            "variant": lease.variant,
            "open": slot == lease.open_slot,
            "held": held.get((lease.task, slot), 0),
            "waiting": waiting.get((lease.task, slot)),
        }
        for lease in (plan.leases if plan else ())
        for slot in lease.slots
    ]


def _sessions(found: Sequence[Session], reports: Mapping[str, Report]) -> list[dict[str, Any]]:
    counts = session_counts(reports.values())
    ordered = sorted(found, key=lambda each: (each.opened_s, each.id))
    return [session_row(each, counts.get(each.id, {})) for each in ordered]
