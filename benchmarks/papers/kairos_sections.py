"""The sections of docs/results/kairos.md that show claims of Kairos' paper row by row."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.papers.kairos_cases import AUTHORS_GAPS, BUDGETS, REPEATS, TRACE, case_file
from benchmarks.papers.kairos_claims import (
    FIGURE_1,
    FIGURE_MODEL,
    GAINS,
    OTHERS,
    RULES,
    matrix_mixes,
)
from benchmarks.papers.kairos_climb import Climb
from benchmarks.papers.kairos_compare import (
    BASE_PRICE,
    BUDGET,
    COUNTS,
    HOMOGENEOUS,
    MODELS,
    PAPER,
    Mix,
    Search,
)
from benchmarks.papers.kairos_dispatching import dispatching_section
from benchmarks.papers.kairos_learning import learning_section
from benchmarks.papers.kairos_mix_search import search
from benchmarks.papers.kairos_oracle import best_oracle
from benchmarks.papers.kairos_remaining import remaining_section
from benchmarks.papers.kairos_rivals import RIVALS, SEEDS, evaluations
from benchmarks.papers.kairos_tables import lines_of, mean_qps, mix_text
from benchmarks.papers.sources import table
from control.policies.kairos.provisioning import base_of, rank
from headrace.planning.device_mix import MixRequest, pool_of

# Columns of the data's simulation of all mixes -> the rule, as the pages name it.
COLUMNS = {
    "sim_allowable_urgency1_qps": "kairos, urgency 1",
    "sim_allowable_qps": "kairos-paper",
    "sim_clockwork_qps": "earliest",
    "sim_fcfs_qps": "fcfs",
}
LEAST_QPS = 20.0  # of the mixes that figure 2 shows
Carried = Mapping[tuple[str, str], Mapping[Mix, float]]  # (model, column) -> mix -> queries/s


def scaled(qps: float, base: Mix, budget: float = BUDGET) -> float:
    """Return the capacity of base devices, scaled up by the unspent budget."""
    return qps * budget / (base[0] * BASE_PRICE)


# ---------------------------------------------------------------------- best mixes (K41)

CLIMBS = """\
## Where the best mixes of the others come from

A climb for each rule and model (`benchmarks/papers/kairos_climb.py`) searches the best mix with
these nodes and this dropping. It starts at the five mixes with the highest capacity in the data's
simulation and moves to neighbours that keep the SLO at 1 % more load. It has its own seed.

Each cell: the mix where the climb ended (with the size under `threshold`), the number of simulated
mixes, and the capacity relative to the prototype's mix, by the seeds of this page. Where it is
above 1, the ratios below are smaller by that factor than at the prototype's mix. Each rule gets the
better of the two mixes. Kairos' own mix is the best of all by Kairos+
([below](#the-pick-against-the-best-mix)). The climbs are in
`docs/results/rows/kairos-climbs.jsonl`.

"""


def climbs_section(found: Sequence[Search], climbs: Sequence[Climb]) -> str:
    """Return the section about the mixes of the baselines."""
    by = {(each.model, each.policy): each for each in climbs}
    rows = [
        [rule, *(_climb_cell(found, by.get((model, rule))) for model in MODELS)] for rule in OTHERS
    ]
    return CLIMBS + lines_of(["rule", *MODELS], rows) + "\n"


def _climb_cell(found: Sequence[Search], each: Climb | None) -> str:
    if each is None:
        return "not run"
    ours = [x for x in found if (x.model, x.row, x.case) == (each.model, each.policy, TRACE)]
    first = next((x for x in ours if x.threshold == 0), None)
    there = mean_qps(ours, mix=each.mix, threshold=each.threshold)
    before = None if first is None else mean_qps(ours, mix=first.mix, threshold=0)
    share = f"{there / before:.3f}" if there and before else "not run"
    size = f" at {each.threshold}" if each.threshold else ""
    return f"{mix_text(each.mix)}{size} ({each.evaluated} mixes): {share}"


# ---------------------------------------------------------------------- the data

LATENCIES = """\
## Base type and spread of the latencies

- `base`: the type that plans take as the base where the pipeline file names none (K2).
- `correlation`: between size and mean latency, on the type where it is lowest (K19; the paper has
  above 0.99).
- The other columns have the standard deviation of the repeats relative to their mean, the median
  over the sizes (K19; the paper has below 0.5 %).

"""


def latencies_section(data: Path, out: Path) -> str:
    """Return the section about the measured latencies."""
    measured: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for row in table(data / "latency.csv", PAPER):
        values = (float(row[key]) for key in ("batch", "total_mean_ms", "total_std_ms"))
        size, mean_ms, deviation_ms = values
        series = measured.setdefault((row["model"], row["instance"]), [])
        series.append((size, mean_ms, deviation_ms / mean_ms))
    rows, types = [], list(dict.fromkeys(name for _, name in measured))
    for model in MODELS:
        pool, _ = pool_of(case_file(out, model, TRACE), MixRequest())
        base = base_of(replace(pool, base=""))
        by_type = [np.array(measured[model, name]).T for name in types]
        least = min(float(np.corrcoef(of[0], of[1])[0, 1]) for of in by_type)
        spreads = [f"{np.median(of[2]):.1%}" for of in by_type]
        found = "none" if base is None else pool.types[base].name
        rows.append([model, found, f"{least:.3f}", *spreads])
    return LATENCIES + lines_of(["model", "base", "correlation", *types], rows) + "\n"


# ---------------------------------------------------------------------- one mix for every rule

ON_ONE_MIX = """\
## Every rule on Kairos' mix

Capacity of each rule relative to `kairos`, on the mix ranked first by the fluid bound (K41, K47).
The prototype, without dropping: fcfs 0.04 to 0.17, earliest 0.55 to 0.68, threshold 0.81 to 0.91.

"""


def one_mix_section(found: Sequence[Search], firsts: Mapping[str, Mix]) -> str:
    """Return the section with every rule on the mix of Kairos; ``firsts`` are those by model."""
    rows = []
    for rule in OTHERS:
        cells = []
        for model in MODELS:
            asked = {"model": model, "mix": firsts[model], "case": TRACE, "threshold": 0}
            ours, theirs = (mean_qps(found, row=row, **asked) for row in ("kairos", rule))
            cells.append("not run" if ours is None or theirs is None else f"{theirs / ours:.2f}")
        rows.append([rule, *cells])
    names = [f"{model} on {mix_text(firsts[model])}" for model in MODELS]
    return ON_ONE_MIX + lines_of(["rule", *names], rows) + "\n"


def first_mixes(out: Path) -> dict[str, Mix]:
    """Return the mix of each model that the fluid bound ranks first."""
    pools = {model: pool_of(case_file(out, model, TRACE), MixRequest())[0] for model in MODELS}
    return {model: rank(pool, BUDGET, "fluid", 1).best[0].counts for model, pool in pools.items()}


# ---------------------------------------------------------------------- figures 1 to 3 and 14

FIGURES = """\
## Figures 1 to 3 and 14: no rule and no mix is best everywhere

**Figure 1 (K5)**, rm2, first come, first served, relative to base devices scaled up to the budget.
The paper has 3+1+3+0 at 1.15 and both others below 1. 1+4+2+0 costs $ 2.55, above the budget.

{figure_1}

**Figure 2 (K6)**: of the mixes with a capacity of at least 20 queries/s, the share below base
devices scaled up, from the data's simulation of all 331 mixes. The paper has about 0.7, of the
mixes on a path of simulated annealing.

{figure_2}

**Figures 3 and 14 (K7, K47)**, rm2, one seed: the capacity of each rule as a share of the bound, on
the twenty mixes with the highest bound, then on five random ones. Mixes that were not run are left
out. The size of `threshold` is at most what every auxiliary type of the mix serves in time, so one
t3.xlarge leaves nearly all queries to the base device.

{flips}

{matrix}
"""


def figures_section(found: Sequence[Search], carried: Carried, out: Path) -> str:
    """Return the section about the paper's figures of single mixes."""
    cells, flips = _matrix(found, out)
    return FIGURES.format(
        figure_1=_figure_1(found),
        figure_2=_figure_2(carried),
        flips=flips,
        matrix=lines_of(["mix", "bound", *RULES], cells),
    )


def _figure_1(found: Sequence[Search]) -> str:
    base = (4, 0, 0, 0)
    asked = {"model": FIGURE_MODEL, "case": TRACE, "threshold": 0, "seed": 0}
    flat = mean_qps(found, row=HOMOGENEOUS, **asked)
    rows = []
    for rule, mix in [*(("fcfs", mix) for mix in FIGURE_1), ("kairos", FIGURE_1[1])]:
        qps = mean_qps(found, row=rule, mix=mix, **asked)
        told = ["not run"] * 2
        if qps is not None and flat is not None:
            told = [f"{qps:.0f}/s", f"{qps / scaled(flat, base):.2f}"]
        rows.append([rule, mix_text(mix), *told])
    return lines_of(["rule", "mix", "capacity", "relative to base devices"], rows)


def carried_by(data: Path) -> dict[tuple[str, str], dict[Mix, float]]:
    """Return the data's simulation of all mixes with a base device, queries/s."""
    found: dict[tuple[str, str], dict[Mix, float]] = {}
    for row in table(data / "sim_allowable_exhaustive.csv", PAPER):
        mix = tuple(int(row[count]) for count in COUNTS)
        for column in COLUMNS:
            found.setdefault((row["model"], column), {})[mix] = float(row[column])
    return found


def _figure_2(carried: Carried) -> str:
    rows = []
    for column in ("sim_fcfs_qps", "sim_allowable_urgency1_qps"):
        cells = []
        for model in MODELS:
            base = (4, 0, 0, 0)
            flat = scaled(carried[model, "sim_fcfs_qps"][base], base)
            shown = [qps for qps in carried[model, column].values() if qps >= LEAST_QPS]
            cells.append(f"{np.mean([qps < flat for qps in shown]):.2f} of {len(shown)}")
        rows.append([COLUMNS[column], *cells])
    return lines_of(["rule", *MODELS], rows)


def _matrix(found: Sequence[Search], out: Path) -> tuple[list[list[str]], str]:
    best, others = matrix_mixes(out)
    asked = {"model": FIGURE_MODEL, "case": TRACE, "threshold": 0, "seed": 0}
    rows, order = [], {}
    for each in (*best, *others):
        qps = {rule: mean_qps(found, row=rule, mix=each.counts, **asked) for rule in RULES}
        shares = [
            "not run" if (of := qps[rule]) is None else f"{of / each.bound_qps:.2f}"
            for rule in RULES
        ]
        known = {rule: of for rule, of in qps.items() if of is not None}
        if known:
            rows.append([mix_text(each.counts), f"{each.bound_qps:.1f}/s", *shares])
        order[each.counts] = known
    return rows, _flips(order)


def _flips(qps: Mapping[Mix, Mapping[str, float]]) -> str:
    """Return for each two of the baselines on how many mixes which one has more capacity."""
    told = []
    for one, other in combinations(OTHERS, 2):
        both = [row for row in qps.values() if one in row and other in row]
        more = sum(row[one] > row[other] for row in both)
        told.append(f"- `{one}` has more capacity than `{other}` on {more} of {len(both)} mixes.")
    return "\n".join(told)


# ---------------------------------------------------------------------- figure 10

EVALUATIONS = """\
## Figure 10 (K43): mixes that Kairos+ evaluates under each rule

Algorithm 1 with the fluid bound on the data's simulation of 331 mixes; for the oracle, on all mixes
within the budget. For a rule far below the bound it prunes little. The paper has below 1 % for
Kairos (at most 3 of 331 mixes), and 5 to 30 % for Ribbon (`fcfs`) and DRS (`threshold`, which the
data lacks).

"""


def evaluations_section(carried: Carried, out: Path) -> str:
    """Return the section about the evaluations of Algorithm 1."""
    rows = []
    pools = {model: pool_of(case_file(out, model, TRACE), MixRequest())[0] for model in MODELS}
    for column, rule in COLUMNS.items():
        cells = []
        for model in MODELS:
            values = carried[model, column]
            ranked = [
                x for x in rank(pools[model], BUDGET, "fluid", 1000).best if x.counts in values
            ]
            counts, bounds, costs = (
                np.array([getattr(each, name) for each in ranked])
                for name in ("counts", "bound_qps", "cost")
            )
            evaluated = len(search(counts, bounds, costs, values.__getitem__).evaluated)
            cells.append(f"{evaluated} ({evaluated / len(ranked):.1%})")
        rows.append([rule, *cells])
    oracles = [len(best_oracle(pools[model], BUDGET).evaluated) for model in MODELS]
    rows.append(["oracle", *(str(n) for n in oracles)])
    return EVALUATIONS + lines_of(["rule", *MODELS], rows) + "\n"


# ---------------------------------------------------------------------- figure 11

RIVALS_HEAD = f"""\
## Figure 11 (K44): searches without a bound

Number of mixes that a search evaluates until it has the best one under `kairos`, on the data's
simulation of 331 mixes; means of {SEEDS} seeds. All searches skip mixes that an evaluated one
contains (`benchmarks/papers/kairos_rivals.py`). Kairos+ with the fluid bound: until it has
evaluated the best mix. To know that this mix is the best, it needs the evaluations of figure 10.

"""


def rivals_section(carried: Carried, out: Path) -> str:
    """Return the section about random, genetic and Bayesian search."""
    column = "sim_allowable_urgency1_qps"
    rows = []
    for name, propose in RIVALS.items():
        cells = []
        for model in MODELS:
            counts = np.array(list(carried[model, column]))
            values = np.array(list(carried[model, column].values()))
            taken = [evaluations(propose, counts, values, seed) for seed in range(SEEDS)]
            cells.append(f"{np.mean(taken):.0f}")
        rows.append([name, *cells])
    places = []
    for model in MODELS:
        values_by_mix = carried[model, column]
        pool, _ = pool_of(case_file(out, model, TRACE), MixRequest())
        ranked = [x.counts for x in rank(pool, BUDGET, "fluid", 1000).best]
        ranked = [mix for mix in ranked if mix in values_by_mix]
        best = max(values_by_mix, key=values_by_mix.__getitem__)
        places.append(str(ranked.index(best) + 1))
    rows.append(["Kairos+", *places])
    return RIVALS_HEAD + lines_of(["search", *MODELS], rows) + "\n"


# ---------------------------------------------------------------------- figures 15 and 16

GAIN = """\
## Figures 15 and 16 (K48 to K50): other budgets, SLOs, sizes and gaps

Capacity of Kairos on the mix ranked first by the fluid bound, over that of base devices scaled up
to the budget; one seed. Each cell has the ratio and the mix.

- `authors' gaps` are those of the artifact: whole milliseconds with a Poisson distribution, far
  more regular than the gaps of a Poisson process, and bursts where the mean is below 1 ms (ncf). In
  brackets, the capacities of both relative to exponential gaps.
- `measured repeats` draws each latency from the quantiles of the data's 99 repeats instead of their
  mean (K19, K21: the spread is largest on t3.xlarge). In brackets, the capacities of both relative
  to means.
- The parameters of the normal distributions are ours, since the paper names none.

"""


def gains_section(found: Sequence[Search]) -> str:
    """Return the section about the gain over base devices in other cases."""
    rows = [[case, *(_gain(found, model, case) for model in MODELS)] for case in (TRACE, *GAINS)]
    return GAIN + lines_of(["case", *MODELS], rows) + "\n"


def _gain(found: Sequence[Search], model: str, case: str) -> str:
    these = [x for x in found if (x.model, x.case, x.seed, x.threshold) == (model, case, 0, 0)]
    ours = next((x for x in these if x.row == "kairos"), None)
    base = next((x for x in these if x.row == HOMOGENEOUS), None)
    if ours is None or base is None or not base.qps:
        return "not run"
    gain = ours.qps / scaled(base.qps, base.mix, BUDGETS.get(case, BUDGET))
    told = f"{gain:.2f} on {mix_text(ours.mix)}"
    usual = [_same(found, each) for each in (ours, base)] if case in (AUTHORS_GAPS, REPEATS) else []
    shares = [each.qps / of for each, of in zip((ours, base), usual, strict=False) if of]
    return told + (f" ({', '.join(f'{x:.2f}' for x in shares)})" if shares else "")


def _same(found: Sequence[Search], each: Search) -> float | None:
    return mean_qps(
        found, model=each.model, row=each.row, mix=each.mix, case=TRACE, seed=0, threshold=0
    )


def sections(
    found: Sequence[Search], climbs: Sequence[Climb], data: Path, out: Path
) -> tuple[str, str]:
    """Return the sections before the ratios, and the claims row by row."""
    carried = carried_by(data)
    claims = (
        latencies_section(data, out),
        learning_section(data),
        remaining_section(data, out),
        one_mix_section(found, first_mixes(out)),
        figures_section(found, carried, out),
        evaluations_section(carried, out),
        rivals_section(carried, out),
        gains_section(found),
        dispatching_section(found),
    )
    return climbs_section(found, climbs), "\n".join(claims)
