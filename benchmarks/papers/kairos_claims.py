"""The searches behind the claims of Kairos' paper that its comparison shows row by row.

Beside each rule at its own best mix (``kairos_compare``, ``kairos_climb``): every rule on the mix
of Kairos, on the mixes of the paper's figure 1 and on mixes of rm2 (figures 3 and 14), Kairos
over base devices with other sizes, another SLO, larger budgets, the gaps of the artifact
(figures 15 and 16) and measured repeats, with hops and by several dispatchers. Claims have the
numbers of the rows that the page names.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.papers.kairos_cases import (
    AUTHORS_GAPS,
    BUDGETS,
    DISPATCHERS,
    HOPS,
    NORMALS,
    REPEATS,
    SLO_FACTORS,
    SLOW_HOPS,
    TRACE,
    case_file,
)
from benchmarks.papers.kairos_compare import BASE_PRICE, BUDGET, HOMOGENEOUS, Mix, Search
from control.policies.kairos.provisioning import Ranked, rank
from headrace.planning.device_mix import MixRequest, pool_of
from headrace.simulation.capacity_search import LIKELY

RULES = ("kairos", "earliest", "threshold", "fcfs")
OTHERS = RULES[1:]
# What a rule carries of a mix's bound, by which its search begins.
LIKELY_SHARE = {"kairos": LIKELY, "earliest": 0.6, "threshold": 0.8, "fcfs": 0.3}
FIGURE_1 = ((3, 1, 3, 0), (2, 0, 9, 0), (1, 4, 2, 0))  # the last is above the budget on purpose
FIGURE_MODEL = "rm2"
TOP, RANDOM, RANDOM_SEED = 20, 5, 0
GAINS = (*SLO_FACTORS, *NORMALS, AUTHORS_GAPS, REPEATS, *BUDGETS)
IDLE_ONLY = "kairos, to idle devices only"
LEADS = {"kairos": "kairos", IDLE_ONLY: "kairos:lead=0ms"}
SHORT_SLO = "ncf"  # 5 ms, which three hops exceed: it is also played in slower time
PARTS_OF = 14  # times the mix of rm2: some 200 devices


def claim_searches(out: Path, models: Sequence[str], seeds: int) -> list[Search]:
    """Return the searches of all claims; those of one mix beside others have one seed."""
    found = [
        _search(model, rule, mix, bound, seed)
        for seed in range(seeds)
        for model in models
        for mix, bound in [_first(out, model, TRACE)]
        for rule in OTHERS
    ]
    for model in models:
        found += _gains(out, model) + _leads(out, model)
    if FIGURE_MODEL in models:
        found += _figure_1() + _matrix(out) + _dispatchers(out)
    return found


def _search(model: str, rule: str, mix: Mix, bound: float, seed: int, case: str = TRACE) -> Search:
    start_qps = LIKELY_SHARE[rule] * bound
    return Search(model, rule, rule, mix, seed, start_qps=start_qps, case=case)


def _first(out: Path, model: str, case: str) -> tuple[Mix, float]:
    """Return the mix ranked first by the fluid bound in a case, and its bound in queries/s."""
    best = _ranked(out, model, case, 10)[0]
    return best.counts, best.bound_qps


def _ranked(out: Path, model: str, case: str, top: int) -> tuple[Ranked, ...]:
    pool, _ = pool_of(case_file(out, model, case), MixRequest())
    return rank(pool, BUDGETS.get(case, BUDGET), "fluid", top).best


def _gains(out: Path, model: str) -> list[Search]:
    """Return Kairos on the mix ranked first and first come, first served on base devices."""
    found = []
    for case in GAINS:
        mix, bound = _first(out, model, case)
        base = int(BUDGETS.get(case, BUDGET) / BASE_PRICE)
        found += [
            _search(model, "kairos", mix, bound, 0, case),
            Search(model, HOMOGENEOUS, "fcfs", (base, 0, 0, 0), 0, case=case),
        ]
    return found


def _leads(out: Path, model: str) -> list[Search]:
    """Return Kairos with hops, as it is and without sending ahead to busy devices."""
    mix, bound = _first(out, model, TRACE)
    cases = (HOPS, SLOW_HOPS) if model == SHORT_SLO else (HOPS,)
    return [
        Search(model, row, policy, mix, 0, start_qps=LIKELY * bound, case=case)
        for case in cases
        for row, policy in LEADS.items()
    ]


def _dispatchers(out: Path) -> list[Search]:
    """Return Kairos on many devices that one or several dispatchers share."""
    mix, bound = _first(out, FIGURE_MODEL, TRACE)
    many = tuple(PARTS_OF * count for count in mix)
    return [
        _search(FIGURE_MODEL, "kairos", many, PARTS_OF * bound, 0, case) for case in DISPATCHERS
    ]


def _figure_1() -> list[Search]:
    """Return the mixes of figure 1 under first come, first served, and one under Kairos."""
    found = [Search(FIGURE_MODEL, "fcfs", "fcfs", mix, 0, start_qps=60.0) for mix in FIGURE_1]
    return [*found, Search(FIGURE_MODEL, "kairos", "kairos", FIGURE_1[1], 0, start_qps=110.0)]


def matrix_mixes(out: Path) -> tuple[list[Ranked], list[Ranked]]:
    """Return the best mixes of rm2 by the fluid bound, and others drawn at random."""
    ranked = [each for each in _ranked(out, FIGURE_MODEL, TRACE, 1000) if each.bound_qps > 0]
    rest = np.random.default_rng(RANDOM_SEED).choice(len(ranked) - TOP, RANDOM, replace=False)
    return ranked[:TOP], [ranked[TOP + at] for at in sorted(rest.tolist())]


def _matrix(out: Path) -> list[Search]:
    best, others = matrix_mixes(out)
    return [
        _search(FIGURE_MODEL, rule, each.counts, each.bound_qps, 0)
        for each in (*best, *others)
        for rule in RULES
    ]
