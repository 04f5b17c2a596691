"""Render docs/results/compass.md from the results of ``compass_compare``."""

import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headrace.results.statistics import mean_of

if TYPE_CHECKING:
    from benchmarks.papers.compass_compare import Row
    from benchmarks.scheduling import ScheduleRow

NOTES = Path(__file__).parent / "compass_notes.md"  # of the schedules' last runs, by hand
BEST, ALONE = "compass", "compass, no history"
SURROGATE = "compass, no history, paper's latency"
RIVALS = ("vulcan-like", "videostorm-like")
PIECES = (
    BEST, ALONE, SURROGATE, "compass, no prefix reuse",
    "compass, fixed samples", "compass, neither", "compass, two-sided test",
    "compass, top-k members", "circinus",
)  # fmt: skip
HOURS = ("ACG", "DVC")  # applications whose searches take GPU hours
DRAWS = 2000
# The required factors, with and without history, and the papers' factors.
ASKED = {"vulcan-like": (5.0, 3.0), "videostorm-like": (8.0, 3.0)}
SCHEDULED, SHARE, SCHEDULE_S = 10_000, 0.999, 0.5  # sessions; required of the bound, CPU s
PAPER = {"vulcan-like": "4.2-10.5x", "videostorm-like": "6.0-12.3x"}


def page(rows: Sequence["Row"], schedules: Sequence["ScheduleRow"]) -> str:
    """Return the page of searches and of schedules."""
    apps = list(dict.fromkeys(row.app for row in rows))
    head = HEAD.format(
        queries=len({row.query for row in rows}),
        day=datetime.now(UTC).date(),
        python=platform.python_version(),
        machine=platform.machine(),
    )
    parts = [head, *_first(rows, apps), *_factors(rows, apps), *_pieces(rows, apps)]
    parts += [*_surrogates(rows, apps), *_false(rows), *_schedules(schedules)]
    return "\n".join([*parts, NOTES.read_text(encoding="utf-8"), MISSING])


def _of(rows: Sequence["Row"], app: str, method: str) -> list["Row"]:
    return sorted((r for r in rows if r.app == app and r.method == method), key=lambda r: r.query)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines)) + "\n"


def _first(rows: Sequence["Row"], apps: Sequence[str]) -> Iterator[str]:
    yield FIRST
    methods = list(dict.fromkeys(row.method for row in rows))
    lines = []
    for method in methods:
        cells = [method]
        for app in apps:
            found = _of(rows, app, method)
            scale = 3600.0 if app in HOURS else 1.0
            mean = mean_of([row.seconds / scale for row in found])
            missed = sum(not row.found for row in found)
            steps = float(np.mean([row.steps for row in found]))
            half = "" if mean.half is None else f" ± {mean.half:.2f}"
            none = f", {missed} without a plan" if missed else ""
            cells.append(f"{mean.value:.2f}{half} ({steps:.1f}{none})")
        lines.append(cells)
    units = [f"{app} ({'GPU-h' if app in HOURS else 's'})" for app in apps]
    yield _table(["method", *units], lines)


def _factors(rows: Sequence["Row"], apps: Sequence[str]) -> Iterator[str]:
    yield FACTORS
    lines = []
    for rival in RIVALS:
        for ours, asked in zip((BEST, ALONE), ASKED[rival], strict=True):
            cells = [f"{ours} / {rival}", PAPER[rival] if ours == BEST else "-", f"{asked:g}x"]
            for app in apps:
                low, value, high = ratio(*_seconds(rows, app, rival, ours))
                if value < asked:
                    how = " **missed**"
                else:
                    how = "" if low >= asked else " met by the mean only"
                cells.append(f"{value:.1f}x ({low:.1f} to {high:.1f}){how}")
            lines.append(cells)
    yield _table(["compass / baseline", "papers", "required", *apps], lines)


def _seconds(rows: Sequence["Row"], app: str, *methods: str) -> list[list[float]]:
    return [[row.seconds for row in _of(rows, app, method)] for method in methods]


def ratio(ones: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Return the ratio of two means between its 95 % interval, by a paired bootstrap."""
    one, other = np.array(ones), np.array(others)
    picks = np.random.default_rng(0).integers(len(one), size=(DRAWS, len(one)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = one[picks].mean(axis=1) / other[picks].mean(axis=1)
        value = one.mean() / other.mean()
    low, high = np.quantile(ratios, [0.025, 0.975], method="nearest")  # some are infinite
    return float(low), float(value), float(high)


def _pieces(rows: Sequence["Row"], apps: Sequence[str]) -> Iterator[str]:
    yield PIECES_TEXT
    lines = []
    for method in PIECES:
        cells = [method]
        for app in apps:
            found = _of(rows, app, method)
            low, value, high = ratio(*_seconds(rows, app, method, BEST))
            between = "" if method == BEST else f" ({low:.2f} to {high:.2f})"
            samples = 100 * float(np.mean([row.samples for row in found]))
            cells.append(f"{value:.2f}x{between}, {samples:.0f} %")
        lines.append(cells)
    yield _table(["method", *apps], lines)


def _surrogates(rows: Sequence["Row"], apps: Sequence[str]) -> Iterator[str]:
    """Yield the time with the paper's surrogate over that with composed latencies."""
    found = {app: ratio(*_seconds(rows, app, SURROGATE, ALONE)) for app in apps}
    sooner = [app for app, (low, _, _) in found.items() if low > 1]
    later = [app for app, (_, _, high) in found.items() if high < 1]
    yield SURROGATES.format(sooner=_listed(sooner), later=_listed(later))
    cells = [f"{value:.2f}x ({low:.2f} to {high:.2f})" for low, value, high in found.values()]
    yield _table(apps, [cells])


def _listed(apps: Sequence[str]) -> str:
    return ", ".join(apps) or "no application"


def _false(rows: Sequence["Row"]) -> Iterator[str]:
    yield FALSE
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        found = [row for row in rows if row.method == method and row.found]
        wrong = sum(row.false for row in found)
        slowest = float(
            np.mean([r.propose_ms for r in rows if r.method == method and r.app == "DVC"])
        )
        told = f"{slowest:.1f}" if method in PIECES else "-"
        lines.append([method, f"{len(found)}", f"{wrong} ({100 * wrong / len(found):.1f} %)", told])
    yield _table(["method", "accepted", "truly not compliant", "ms per proposal, 23K plans"], lines)


def _schedules(rows: Sequence["ScheduleRow"]) -> Iterator[str]:
    yield SCHEDULES
    lines = []
    cases = dict.fromkeys((row.objective, row.sessions, row.scheduler) for row in rows)
    for objective, sessions, scheduler in cases:
        found = [
            row
            for row in rows
            if (row.objective, row.sessions, row.scheduler) == (objective, sessions, scheduler)
        ]
        ratios = [row.ratio for row in found]
        worst = min(ratios) if objective == "goodput" else max(ratios)
        longest = max(row.cpu_s for row in found)
        asked = "-"
        if (objective, scheduler, sessions) == ("goodput", BEST, SCHEDULED):
            met = worst >= SHARE and longest <= SCHEDULE_S
            asked = f"{SHARE:g}, {SCHEDULE_S:g} s: {'met' if met else '**missed**'}"
        lines.append(
            [objective, f"{sessions:,}", scheduler, f"{worst:.5f}", f"{longest:.3f}", asked]
        )
    yield _table(
        ["objective", "sessions", "scheduler", "worst", "longest, CPU s", "required"], lines
    )


HEAD = """# Compass and Circinus: searches over the modelled benchmark

**Every figure here is modelled.** No code or data of the papers is public.

- Accuracies, stage seconds, sizes and prices come from `benchmark_model.json`, a model of the
  papers' five applications whose constants were chosen to be realistic.
- Seconds are samples times modelled A100 seconds over the application's parallelism, plus 0.04 s
  per step.
- By construction, the latencies of the model's stages add up, as composed latencies assume. Real
  latencies add up less exactly.
- Every method gets the same {queries} queries of each application and the same samples. Intervals
  are 95 %.

Written by `python -m benchmarks.papers.compass DATA_DIR OUT_DIR --compare` on {day}, Python
{python}, {machine}.
"""
FIRST = """## The first accepted plan

Mean modelled seconds (GPU-hours for ACG and DVC) until the first plan is accepted; in brackets, the
mean number of steps. `compass` has the searches of 12 earlier queries as history. A search without
a plan counts with the time at which it ended (150 steps, 2 min or 10 GPU-hours), so the means of
methods with such searches are too low.
"""
FACTORS = """## Against the papers' baselines

Mean time of the baseline over the mean time of `compass`. `vulcan-like` is a Bayesian search by
expected improvement of one utility; `videostorm-like` is hill climbing with restarts. Both profile
whole pipelines on a fixed number of samples. The papers' factors are over their own Vulcan and
VideoStorm, on real applications. `met by the mean only`: the 95 % interval has values below the
required factor.
"""
PIECES_TEXT = """## Ablations

Each row changes a component of `compass`. A cell has the time relative to `compass` (95 % interval,
bootstrap over queries) and the samples of a profile as a share of the fixed number.

- `circinus`: the two-sided test of v1 together with the committee of v1, the past searches with the
  least accumulated error (`top-k`). Each of the two also has a row of its own.
- `paper's latency`: a Gaussian process predicts the latency of whole plans (`compass-paper`), where
  `compass` composes stage latencies. In both, one profile prices every placement of its
  configuration.
"""
SURROGATES = """\
**Composed latencies find the first plan sooner in {sooner}, later in {later}**; elsewhere
the interval includes 1. Time with the paper's surrogate over the time with composed latencies, both
without history (paired bootstrap); cheaper plans that follow do not count:
"""
FALSE = """## Accepted plans that do not comply

All applications together. The last column is measured, not modelled: CPU milliseconds per proposal.

**The first plan and the last.** A search goes on after its first plan, and the session is served by
the cheapest one, often one with lucky samples (a winner's curse). So a search profiles a doubtful
cheapest plan further, with its prediction as prior of the test (`sequential_test.py`). Modelled
searches with 12 earlier ones as history, to their end (at most 120 steps, or the deadline), 40
queries of each application and each of the seeds 7, 101 and 102, on 2026-11-30 (2d03696c):

| application | searches | not compliant: by samples | with a prior | $ over the least | seconds |
| --- | --- | --- | --- | --- | --- |
| SR | 120 | 2 (1.7 %) | 1 (0.8 %) | 1.045, 1.052 | 1.03 |
| VT | 120 | 8 (6.7 %) | 4 (3.3 %) | 1.130, 1.159 | 1.12 |
| LVC | 120 | 8 (6.7 %) | 1 (0.8 %) | 1.109, 1.167 | 1.14 |
| DVC | 120 | 4 (3.3 %) | 3 (2.5 %) | 1.111, 1.135 | 1.08 |
| ACG | 120 | 7 (5.8 %) | 2 (1.7 %) | 1.343, 1.453 | 1.14 |
| **all** | 600 | 29 (4.8 %) | **11 (1.8 %, interval 1.0 to 3.3)** | 1.151, 1.198 | 1.10 |

- First plans are the same in all 600 searches. So are those of `compass` with and without history
  in the tables above: played again that day, their mean seconds and steps are equal.
- $ over the least: the sum of the costs over that of the cheapest truly compliant plans, both ways.
  Seconds: modelled, of the whole searches, with a prior over those without.
- **The 3 % required are met, though the interval reaches above them; the aim of 1 % is missed.** VT
  alone has 3.3 %.
- Where the plans of both ways comply, the new ones cost 2.9 % more, those of ACG 6.8 %.
- Seeds 7 and 101 served to choose the rule and have 3 of 200 each. Seed 102 did not, except for the
  bound of 0.93 at the last sample: 5 of 200, of 9 by samples alone.
- Earlier that day a part of these searches was played, by an earlier state of the search: 26 of 537
  by samples alone, 16 of 537 with a prior and a bound of 0.9 at the last sample, and 10 of 518 with
  0.93 ($ over the least 1.157; of 1.129 by samples alone).
- A higher `cap` for every test costs more: of 200 searches (seed 7, before) 0.98 left 5 cheapest
  plans that do not comply in place of 8, for 7 % more $.
- `python -m benchmarks.papers.compass_final_plans DATA_DIR ROWS --seeds 7 101 102` plays both ways;
  the rows are in `rows/compass-final-plans.jsonl`.

The first plans:
"""
SCHEDULES = """## Schedules of many sessions

`worst` is the value of a schedule over the bound of the linear program: for goodput, the weight
served (at most 1); for cost, $ per hour (at least 1). It is the worst of these cases, with three
drawn instances each:

- plans of up to 1, 2 and 4 items;
- for goodput: equal weights, weights 1/2/4 and weights 1 to 10.

Tiers can serve half to nine tenths of the sessions for goodput, and are unlimited for cost.
`compass-paper` is the paper's greedy scheduler (about 0.90 of the bound in the prototype's
instances). `compass-ilp` is its integer program, for which the paper reports 4 h at 1,000 sessions
and more than 24 h at 10,000. Both pack exactly here. CPU seconds are measured.
`python -m benchmarks.scheduling` prints every row.
"""
MISSING = """## Not reproduced here

The benchmark does not play drift, nor a committee of past searches for the paper's latency
surrogate (a Gaussian process over whole plans, here without history). Nothing is claimed about
either. Other pages have:

- [compass-sweeps](compass-sweeps.md): sweeps of load, planning budgets, tiers and configurations,
  hours without one component, committees and larger analysers;
- [compass-online](compass-online.md): sessions that come and go (figures 8 and 9 of Compass).
"""
