"""Run Kairos' comparison: every rule at its own best mix, simulated with the real nodes.

The searches are those of ``headrace capacity``: 10,000 queries per trial, exponential gaps, 99 %
answered in time, bisected to 1 %, the same dropping for every rule. A search begins at the rate
found for another seed, else at the prototype's. Finished searches are kept in
``OUT_DIR/comparison.jsonl``, so that an interrupted run can resume; remove the lines of a rule that
has changed. The best mixes of the rules are those of ``sim_scheme_comparison.csv`` or of a climb
(``kairos_climb``), whichever carries more; the ranking of the whole space is compared with
``sim_allowable_exhaustive.csv``, without simulation.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.papers.kairos_cases import AUTHORS_GAPS, TRACE, authors_gaps, case_file, slower
from benchmarks.papers.kairos_mix_search import search
from benchmarks.papers.kairos_oracle import best_oracle
from benchmarks.papers.sources import table
from benchmarks.row_file import RowFile
from control.policies.kairos.provisioning import (
    PICK_AMONG,
    PICKS,
    SAME_BASE,
    Ranked,
    base_of,
    rank,
)
from headrace.config.pipeline_file import PipelineFile
from headrace.config.policy_options import with_policies
from headrace.planning.device_mix import MixRequest, pool_of, with_mix
from headrace.simulation.capacity_search import CapacityRequest, capacity, exponential_gaps

PAPER = "Kairos"
MODELS = ("rm2", "ncf", "wnd", "mtwnd", "dien")
TYPES = ("g4dn.xlarge", "c5n.2xlarge", "r5n.large", "t3.xlarge")
COUNTS = ("n_g4dn", "n_c5n", "n_r5n", "n_t3")
# Names of the rules in the data -> names here.
SCHEMES = {"kairos": "kairos", "fcfs": "fcfs", "clkwrk": "earliest", "drs": "threshold"}
BUDGET = 2.5  # $ per hour
BASE_PRICE = 0.526  # $ per hour of g4dn.xlarge
HOMOGENEOUS = "homogeneous"
ORACLE = "oracle"
FIRST_STEP = 1.04  # of a search that begins near its result

Mix = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """One search: a rule, a mix and a seed, with the rate found in queries/s."""

    model: str
    row: str  # the rule's name, or "homogeneous"
    policy: str
    mix: Mix
    seed: int
    qps: float = 0.0
    start_qps: float | None = None  # the first rate of the search
    case: str = TRACE  # of kairos_cases
    threshold: int = 0  # of the rule threshold, in items; 0: the one that balances the devices


def searches(data: Path, models: Sequence[str], seeds: int) -> list[Search]:
    """Return the searches to run, seed by seed, so that an interrupted run has whole rows."""
    rows = table(data / "sim_scheme_comparison.csv", PAPER)
    best = {
        (row["model"], SCHEMES[row["scheme"]]): _mix_of(row["config_g4dn_c5n_r5n_t3"])
        for row in rows
        if row["scheme"] in SCHEMES
    }
    near = {(row["model"], SCHEMES.get(row["scheme"])): float(row["allowable_qps"]) for row in rows}
    found: list[Search] = []
    for seed in range(seeds):
        for model in models:
            found.append(Search(model, HOMOGENEOUS, "fcfs", (4, 0, 0, 0), seed))
            found += [
                Search(model, policy, policy, best[model, policy], seed,
                       start_qps=near[model, policy])
                for policy in ("kairos", "earliest", "threshold", "fcfs")
            ]  # fmt: skip
    return found


def _mix_of(text: str) -> Mix:
    return tuple(int(part) for part in text.strip("()").split(","))


def searched(out: Path, asked: Sequence[Search], processes: int) -> Iterator[Search]:
    """Yield every search with its rate: kept ones first, then the others as they finish."""
    record = recorded(out)
    known = {_key(each): each for each in record.read()}
    wanted = {_key(each): each for each in asked}
    yield from (known[key] for key in wanted if key in known)
    left = [each for key, each in wanted.items() if key not in known]
    with ProcessPoolExecutor(processes) as pool:
        for seed in sorted({each.seed for each in left}):
            near = {_key(each)[:-1]: each.qps for each in known.values()}
            now = [
                replace(each, start_qps=near.get(_key(each)[:-1], each.start_qps))
                for each in left
                if each.seed == seed
            ]
            for found in pool.map(_found, [out] * len(now), now):
                record.append(found)
                known[_key(found)] = found
                yield found


def recorded(out: Path) -> RowFile[Search]:
    """Return the file of the searches that have ended."""
    return RowFile(out / "comparison.jsonl", Search)


def _key(of: Search) -> tuple[object, ...]:
    return of.model, of.row, of.policy, of.mix, of.case, of.threshold, of.seed


def _found(out: Path, asked: Search) -> Search:
    found = capacity(asked_of(out, asked))
    return replace(asked, qps=round(found.best.qps, 3) if found.best else 0.0)


def asked_of(out: Path, search: Search) -> CapacityRequest:
    """Return the request by which the capacity of a search is found."""
    file = case_file(out, search.model, search.case)
    mix = {name: n for name, n in zip(TYPES, search.mix, strict=True) if n}
    policy = search.policy
    if policy == "threshold":
        size = search.threshold or balanced_threshold(file, search.mix)
        policy = f"threshold:threshold={size}"
    file = with_mix(with_policies(file, (policy,)), mix)
    step = FIRST_STEP if search.start_qps else 1.12
    return CapacityRequest(
        file=file,
        policy=policy,
        seed=search.seed,
        start_qps=search.start_qps,
        first_step=step,
        gaps=authors_gaps if search.case == AUTHORS_GAPS else exponential_gaps,
        dilate=slower(search.case),
    )


def balanced_threshold(file: PipelineFile, mix: Mix) -> int:
    """Return the threshold size that maximises throughput by mean latencies, balancing base and
    auxiliary devices; at most the largest size that all auxiliary types serve in time."""
    pool, _ = pool_of(file, MixRequest())
    times, base = pool.times, TYPES.index(file.cluster.base)
    p, t = times.probabilities, times.latency_s
    there = [i for i, n in enumerate(mix) if n and i != base]
    if not there:
        return 1
    most = min(times.largest[i] for i in there)
    best = (0.0, 0)
    for k in range(most + 1):
        small = sum(mix[i] / float(t[i, : k + 1] @ p[: k + 1]) for i in there)
        large_s = float(t[base, k + 1 :] @ p[k + 1 :])
        large = mix[base] / large_s if large_s > 0 else float("inf")
        best = max(best, (min(small, large), k))
    return pool.sizes.sizes[best[1]]


def oracles(out: Path, models: Sequence[str]) -> list[Search]:
    """Return the oracle's best mix and throughput for each model."""
    found = []
    for model in models:
        pool, _ = pool_of(case_file(out, model, TRACE), MixRequest())
        best = best_oracle(pool, BUDGET)
        found.append(Search(model, ORACLE, ORACLE, best.counts, 0, best.qps))
    return found


# ---------------------------------------------------------------------- the ranking, from the data


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRow:
    """Rank of the best simulated mix by a bound, and the quality of the mix ranked first."""

    model: str
    bound: str
    place: int  # of the best mix, from 1
    first_share: float  # throughput of the mix ranked first / of the best mix
    paper_share: float  # throughput of the paper's pick / of the best mix
    cosine_share: float  # the same with the cosine distance in place of the Euclidean
    highest_share: float  # largest throughput / bound over all mixes
    evaluations: int  # of Kairos+ until it ends
    search_share: float  # throughput of the mix that Kairos+ finds / of the best mix


def ranking_rows(data: Path, out: Path) -> list[RankingRow]:
    """Return the rankings against the data's simulation of all 331 mixes with urgency 1."""
    rows = table(data / "sim_allowable_exhaustive.csv", PAPER)
    found: list[RankingRow] = []
    for model in MODELS:
        carried = {
            tuple(int(row[c]) for c in COUNTS): float(row["sim_allowable_urgency1_qps"])
            for row in rows
            if row["model"] == model
        }
        pool, _ = pool_of(case_file(out, model, TRACE), MixRequest())
        for bound in ("fluid", "eq15"):
            ranked = [
                each for each in rank(pool, BUDGET, bound, 1000).best if each.counts in carried
            ]
            values = np.array([carried[each.counts] for each in ranked])
            bounds = np.array([each.bound_qps for each in ranked])
            base = base_of(pool)
            picked, other = PICKS["paper"](ranked, base), cosine_pick(ranked, base)
            counts = np.array([each.counts for each in ranked])
            prices = np.array([each.cost for each in ranked])
            plus = search(counts, bounds, prices, carried.__getitem__)
            found.append(
                RankingRow(
                    model=model, bound=bound, place=int(values.argmax()) + 1,
                    first_share=float(values[0] / values.max()),
                    paper_share=float(carried[picked.counts] / values.max()),
                    cosine_share=float(carried[other.counts] / values.max()),
                    highest_share=float((values / bounds).max()),
                    evaluations=len(plus.evaluated),
                    search_share=float(plus.qps / values.max()),
                )
            )  # fmt: skip
    return found


def cosine_pick(best: Sequence[Ranked], base: int | None) -> Ranked:
    """Return the paper's pick with cosine distances, which the paper compares with its own."""
    if base is not None and len({each.counts[base] for each in best[:SAME_BASE]}) == 1:
        return best[0]
    counts = np.array([each.counts for each in best[:PICK_AMONG]], dtype=float)
    ways = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    apart = ((1 - ways @ ways.T) ** 2).sum(axis=1)
    return best[int(np.argmin(apart))]
