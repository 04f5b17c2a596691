"""The outcomes of a load, and their text and JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.arrivals.load_phases import Phases
from headrace.cells import columns, decimal, ms, percent
from headrace.results.phase_outcomes import PhaseOutcomes
from headrace.results.tally import Tally
from operators.outcomes import LOST, OUTCOMES, outcome_of
from schemas.records import ANSWERED, Answer
from schemas.variant_id import variant_key
from schemas.visible_text import one_line

REASONS = 10  # the most frequent ones
BEHIND_MS = 100.0  # from which on the text of a load says that it was not sent at its times


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The outcomes of a load, with its length, seed and number of inputs."""

    tally: Tally
    seconds: float
    behind_ms: float  # the largest delay of a query behind its arrival time
    seed: int
    inputs: int  # distinct ones
    began_s: float = 0.0  # epoch
    warm_up: int = 0  # queries before the load, not counted
    arrivals: Phases | None = None
    phases: tuple[PhaseOutcomes, ...] = ()  # of a load in phases; the last one is all of it


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
        f"{row['queries']} queries in {row['seconds']:.1f} s: "
        + ", ".join(f"{row[name]} {name}" for name in OUTCOMES),
        f"SLO attainment {percent(row['slo_attainment'])}; latency p50 {ms(row['p50_ms'])}, "
        f"p95 {ms(row['p95_ms'])}, p99 {ms(row['p99_ms'])}",
    ]
    if "accuracy" in row:
        lines.append(
            f"accuracy {percent(row['accuracy'])} of parts, {percent(row['accuracy_whole'])} whole"
        )
    lines += [
        f"  {count} x {one_line(reason)}"
        for reason, count in list(row["reasons"].items())[:REASONS]
    ]
    if row[LOST] and row[LOST] == row["queries"]:
        lines.append("no query was answered; check that the pipeline is up: `headrace status FILE`")
    if load.behind_ms > BEHIND_MS:
        lines.append(
            f"the load was up to {load.behind_ms / 1e3:.1f} s behind its times, and latency counts "
            "from the sending: lower the rate, or send from several machines"
        )
    if load.warm_up:
        lines.append(f"{load.warm_up} warm-up queries before it are not counted")
    if load.phases:
        lines += ["", columns([*_head(load.phases), *_measures(load.phases)]), ""]
        lines += ["share of each task's branches, by variant", columns(_variants(load.phases))]
    return "\n".join(lines)


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


def answers_text(answers: Iterable[Answer]) -> str:
    """Return the outcomes of a load so far as text."""
    counts: dict[str, int] = {}
    for answer in answers:
        what = outcome_of(answer)
        counts[what] = counts.get(what, 0) + 1
    said = ", ".join(f"{counts[what]} {what}" for what in OUTCOMES if what in counts)
    return said or "no answer yet"


def awaited_text(count: int) -> str:
    """Return what a load waits for after its last query; ``count``: of answers."""
    return "waiting for 1 answer" if count == 1 else f"waiting for {count} answers"
