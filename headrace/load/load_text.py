"""Show the outcomes of a load as text and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.cells import columns, decimal, ms, percent
from headrace.load.load import LoadResult
from headrace.results.phase_outcomes import PhaseOutcomes
from operators.outcomes import OUTCOMES
from schemas.records import ANSWERED
from schemas.variant_id import variant_key

REASONS = 10  # the most frequent ones


def load_row(load: LoadResult) -> dict[str, Any]:
    """Return the outcomes as a JSON row."""
    return {
        **load.tally.as_json(),
        "seconds": round(load.seconds, 3),
        "behind_ms": round(load.behind_ms, 3),
        "seed": load.seed,
        "distinct_inputs": load.inputs,
        "warm_up_queries_excluded": load.warm_up,
        "reasons": dict(load.tally.reasons),
        **_phases_row(load),
    }


def _phases_row(load: LoadResult) -> dict[str, Any]:
    if load.arrivals is None:
        return {}
    *parts, whole = load.phases
    return {
        "score": whole.score,
        "devices": whole.devices,
        "throughput_qps": round(whole.tally.counts[ANSWERED] / load.seconds, 3),
        "rate_qps": round(load.arrivals.mean_qps, 3),
        "peak_qps": round(load.arrivals.peak_qps, 3),
        "phases": [part.as_json() for part in parts],
        "variant_shares": {task: dict(shares) for task, shares in whole.shares.items()},
    }


def load_text(load: LoadResult) -> str:
    """Return the outcomes as text."""
    row = load_row(load)
    lines = [
        f"{row['queries']} queries in {row['seconds']:.1f} s: " + outcomes_text(row),
        f"SLO attainment {percent(row['slo_attainment'])}; latency p50 {ms(row['p50_ms'])}, "
        f"p95 {ms(row['p95_ms'])}, p99 {ms(row['p99_ms'])}",
    ]
    if "accuracy" in row:
        lines.append(
            f"accuracy {percent(row['accuracy'])} of parts, {percent(row['accuracy_whole'])} whole"
        )
    lines += [f"  {count} x {reason}" for reason, count in list(row["reasons"].items())[:REASONS]]
    if load.warm_up:
        lines.append(f"{load.warm_up} warm-up queries before it are not counted")
    if load.phases:
        lines += ["", columns([*_head(load.phases), *_measures(load.phases)]), ""]
        lines += ["share of each task's branches, by variant", columns(_variants(load.phases))]
    return "\n".join(lines)


def outcomes_text(row: Mapping[str, Any]) -> str:
    """Return the counts of the outcomes in words."""
    names = ("answered", "late", "dropped", "failed", "refused", "lost")
    return ", ".join(f"{row[name]} {name}" for name in names)


def _head(parts: Sequence[PhaseOutcomes]) -> list[list[str]]:
    """Return the names of the phases, and a row of their policies."""
    return [["", *(part.name for part in parts)], ["policy", *(part.policy for part in parts)]]


def _measures(parts: Sequence[PhaseOutcomes]) -> list[list[str]]:
    def row(name: str, cells: list[str]) -> list[str]:
        return [name, *cells]

    tallies = [part.tally for part in parts]
    rows = [
        row("queries/s", [decimal(part.demand_qps) for part in parts]),
        row("devices", [decimal(part.devices) for part in parts]),
        *(row(what, [str(each.counts[what]) for each in tallies]) for what in OUTCOMES),
        row("SLO attainment %", [_share(each.slo_attainment) for each in tallies]),
        *(row(f"p{n} ms", [decimal(each.metrics.latency_ms(n / 100)) for each in tallies])
          for n in (50, 95, 99)),
    ]  # fmt: skip
    known = [each.accuracy for each in tallies if each.accuracy is not None]
    if len(known) < len(tallies):
        return rows
    return [
        *rows,
        row("parts right %", [_share(each.parts) for each in known]),
        row("whole right %", [_share(each.whole) for each in known]),
        row("right in time %", [_share(part.score) for part in parts]),
    ]


def _variants(parts: Sequence[PhaseOutcomes]) -> list[list[str]]:
    """Return each variant's share of its task's branches by phase, in %."""
    tasks = dict.fromkeys(task for part in parts for task in part.shares)
    seen = dict.fromkeys(
        (task, name) for task in tasks for part in parts for name in part.shares.get(task, ())
    )
    rows = [
        [
            variant_key(task, name),
            *(_share(part.shares.get(task, {}).get(name), "") for part in parts),
        ]
        for task, name in seen
    ]
    return [["%", *(part.name for part in parts)], *rows]


def _share(value: float | None, missing: str = "-") -> str:
    return missing if value is None else f"{100 * value:.1f}"
