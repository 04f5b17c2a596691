"""The results of a demo: those of its commands as JSON, and a comparison of policies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.cells import columns, decimal, percent
from headrace.load.load_result import LoadResult, load_row
from headrace.machine import machine
from headrace.report.live_report import LiveReport
from headrace.results.phase_outcomes import PhaseOutcomes
from schemas.records import CommandResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """The policy command: its time (epoch seconds) and its result."""

    before: str
    after: str
    at_s: float
    took_ms: float | None = None  # until its plan was issued; None: no result arrived
    epoch: int | None = None
    message: str = ""

    def done(self, result: CommandResult) -> "PolicyChange":
        """Return the change with the result of its command."""
        took_ms = (result.finished_s - self.at_s) * 1e3
        return replace(self, took_ms=took_ms, epoch=result.epoch, message=result.message)

    def as_json(self) -> dict[str, Any]:
        """Return the change as a JSON row."""
        return {
            "before": self.before,
            "after": self.after,
            "took_ms": None if self.took_ms is None else round(self.took_ms, 3),
            "epoch": self.epoch,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The results of ``load`` and ``report``, and the change of policy during the load."""

    load: LoadResult
    report: LiveReport
    change: PolicyChange | None
    hardware_qps: float | None

    @property
    def lost(self) -> int:
        """The number of queries without an answer."""
        return self.load.tally.counts["lost"]

    @property
    def score(self) -> float | None:
        """The share of the parts of all queries that were right and in time."""
        return self.load.phases[-1].score

    def as_json(self, left: Sequence[str]) -> dict[str, Any]:
        """Return the results as one JSON object; ``left`` are the processes alive after it."""
        row, report = load_row(self.load), self.report.as_json()
        row["phases"] = [_named(phase) for phase in row["phases"]]
        steps_ms = report["steps_ms"]
        return {
            **_named(row),
            "pipeline": report["pipeline"],
            "machine": machine(),
            "hardware_qps": self.hardware_qps,
            "policy_change": None if self.change is None else self.change.as_json(),
            "path_accuracy": report["path_accuracy"],
            "time_spent": [
                {"step": step, "mean_ms": round(mean_ms, 3),
                 "share": round(mean_ms / sum(steps_ms.values()), 4)}
                for step, mean_ms in steps_ms.items()
            ],
            "processes_left": list(left),
        }  # fmt: skip


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """Return a tally with the demo's name of the share of results that are all right."""
    return row | {"postcode_accuracy": row.pop("accuracy_whole", None)}


def best_policy(runs: Sequence[tuple[str, DemoResult]]) -> str | None:
    """Return the policy with the highest score; None if no score is known."""
    known = {policy: each.score for policy, each in runs if each.score is not None}
    return max(known, key=lambda policy: known[policy]) if known else None


def comparison_json(runs: Sequence[tuple[str, DemoResult]], left: Sequence[str]) -> dict[str, Any]:
    """Return the runs of all policies as one JSON object."""
    rows = [{"policy": policy, **each.as_json(())} for policy, each in runs]
    shared = ("pipeline", "seed", "seconds", "peak_qps", "hardware_qps", "machine")
    return {
        **{name: rows[0][name] for name in shared},
        "best": best_policy(runs),
        "runs": rows,
        "processes_left": list(left),
    }


ROWS: dict[str, Callable[[PhaseOutcomes], str]] = {
    "right in time": lambda part: percent(part.score),
    "parts right": lambda part: percent(part.tally.accuracy.parts if part.tally.accuracy else None),
    "SLO attainment": lambda part: percent(part.tally.slo_attainment),
    "devices": lambda part: decimal(part.devices),
}


def demo_comparison_text(runs: Sequence[tuple[str, DemoResult]]) -> str:
    """Return the measures of each phase, policy by policy."""
    said = ", ".join(f"{policy} {percent(each.score)}" for policy, each in runs)
    title = f"parts right and in time: {said}; best: {best_policy(runs) or 'not known'}"
    parts = runs[0][1].load.phases
    rows = [["", "policy", *(part.name for part in parts)]]
    for name, cell in ROWS.items():
        for at, (policy, each) in enumerate(runs):
            rows.append(["" if at else name, policy, *map(cell, each.load.phases)])
    return "\n".join(("", title, columns(rows, left=(0, 1))))
