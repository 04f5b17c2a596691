"""Run Kairos' comparison: every rule at its own best mix, simulated with the real nodes.

The searches are those of ``headrace capacity``: 10,000 queries per trial, exponential gaps, 99 %
answered in time, bisected to 1 %, the same dropping for every rule. Finished searches are kept in
``OUT_DIR/comparison.jsonl``, so that an interrupted run can resume. The best mixes of the rules are
those of ``sim_scheme_comparison.csv``; the ranking of the whole space is compared with
``sim_allowable_exhaustive.csv``, without simulation.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.papers.sources import table
from control.policies.kairos.provisioning import rank
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.policy_options import with_policies
from headrace.planning.device_mix import MixRequest, pool_of, with_mix
from headrace.simulation.capacity_search import CapacityRequest, capacity

PAPER = "Kairos"
MODELS = ("rm2", "ncf", "wnd", "mtwnd", "dien")
TYPES = ("g4dn.xlarge", "c5n.2xlarge", "r5n.large", "t3.xlarge")
COUNTS = ("n_g4dn", "n_c5n", "n_r5n", "n_t3")
# Names of the rules in the data -> names here.
SCHEMES = {"kairos": "kairos", "fcfs": "fcfs", "clkwrk": "earliest", "drs": "threshold"}
HOMOGENEOUS = "homogeneous"
# Kairos / rule in the prototype, with the same dropping (rm2, ncf, wnd, mtwnd, dien).
PROTOTYPE = {
    HOMOGENEOUS: (2.2, 1.9, 1.4, 1.5, 1.6),
    "fcfs": (1.87, 1.94, 1.55, 1.63, 1.74),
    "earliest": (1.24, 1.17, 1.04, 1.07, 1.06),
    "threshold": (1.08, 1.14, 1.07, 1.11, 1.10),
}
MUST = {HOMOGENEOUS: (2.0, 1.35, 1.35, 1.35, 1.35), "fcfs": (1.5,) * 5}

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


def searches(data: Path, models: Sequence[str], seeds: int) -> list[Search]:
    """Return the searches to run, seed by seed, so that an interrupted run has whole rows."""
    rows = table(data / "sim_scheme_comparison.csv", PAPER)
    best = {
        (row["model"], SCHEMES[row["scheme"]]): _mix_of(row["config_g4dn_c5n_r5n_t3"])
        for row in rows
        if row["scheme"] in SCHEMES
    }
    found: list[Search] = []
    for seed in range(seeds):
        for model in models:
            found.append(Search(model, HOMOGENEOUS, "fcfs", (4, 0, 0, 0), seed))
            found += [
                Search(model, policy, policy, best[model, policy], seed)
                for policy in ("kairos", "fcfs", "earliest", "threshold")
            ]
    return found


def _mix_of(text: str) -> Mix:
    return tuple(int(part) for part in text.strip("()").split(","))


def searched(out: Path, asked: Sequence[Search], processes: int) -> Iterator[Search]:
    """Yield every search with its rate: kept ones first, then the others as they finish."""
    kept = out / "comparison.jsonl"
    known = {_key(each): each for each in read(kept)}
    left = [each for each in asked if _key(each) not in known]
    yield from (known[_key(each)] for each in asked if _key(each) in known)
    with ProcessPoolExecutor(processes) as pool, kept.open("a", encoding="utf-8") as lines:
        for found in pool.map(_found, [out] * len(left), left):
            lines.write(json.dumps(asdict(found)) + "\n")
            lines.flush()
            yield found


def read(kept: Path) -> list[Search]:
    """Return the searches of an earlier run, if any."""
    if not kept.exists():
        return []
    rows = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    return [Search(**{**row, "mix": tuple(row["mix"])}) for row in rows]


def _key(of: Search) -> tuple[object, ...]:
    return of.model, of.row, of.policy, of.mix, of.seed


def _found(out: Path, asked: Search) -> Search:
    file = _file(out, asked.model)
    mix = {name: n for name, n in zip(TYPES, asked.mix, strict=True) if n}
    policy = asked.policy
    if policy == "threshold":
        policy = f"threshold:threshold={balanced_threshold(file, asked.mix)}"
    file = with_mix(with_policies(file, (policy,)), mix)
    found = capacity(CapacityRequest(file=file, policy=policy, seed=asked.seed))
    qps = found.best.qps if found.best else 0.0
    return Search(asked.model, asked.row, asked.policy, asked.mix, asked.seed, round(qps, 3))


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


def _file(out: Path, model: str) -> PipelineFile:
    return read_pipeline_file(out / f"{model}.yaml")


# ---------------------------------------------------------------------- the ranking, from the data


@dataclass(frozen=True, slots=True)
class RankingRow:
    """Rank of the best simulated mix by a bound, and the quality of the mix ranked first."""

    model: str
    bound: str
    place: int  # of the best mix, from 1
    first_share: float  # throughput of the mix ranked first / of the best mix
    highest_share: float  # largest throughput / bound over all mixes


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
        pool, _ = pool_of(_file(out, model), MixRequest())
        for bound in ("fluid", "eq15"):
            ranked = [each for each in rank(pool, 2.5, bound, 1000).best if each.counts in carried]
            values = np.array([carried[each.counts] for each in ranked])
            bounds = np.array([each.bound_qps for each in ranked])
            found.append(
                RankingRow(
                    model, bound, int(values.argmax()) + 1, float(values[0] / values.max()),
                    float((values / bounds).max()),
                )
            )  # fmt: skip
    return found


# ---------------------------------------------------------------------- the page


HEAD = """\
# Kairos: results

Made by `python -m benchmarks.papers.kairos DATA_DIR OUT_DIR --compare`. Latencies, sizes, prices
and SLOs are those of the Kairos artifact (HPDC 2023): five models, four EC2 types, $ 2.5 an hour.
The rest is simulated with the nodes that run live, without hops between processes. Capacity is the
highest rate with 99 % of 10,000 queries answered in time, exponential gaps, bisected to 1 %.
Mixes are counts of g4dn.xlarge, c5n.2xlarge, r5n.large, t3.xlarge.

{seeds} A seed of 10,000 queries is good to some 5 %: read the
ratios with that in mind. What is not run is left out, with `--models` or `--seeds`.

## Capacity, each rule at its own best mix

Every rule has the same dropping and admission. `homogeneous`: base devices only, first come first
served, scaled up by the budget that is left. `threshold`: at the size that balances base and
auxiliary devices by their mean latencies.

{capacities}

## Kairos over the others

In brackets what the prototype found that the project started from, and the least value that the
project set; what misses it is **bold**.

{ratios}

## The ranking, against all 331 mixes with a base device

From the data's own simulation of every mix (one seed, urgency 1). `place`: where the best mix
stands in the ranking; `first`: what the mix ranked first carries of the best; `of the bound`: the
largest share of its bound that any mix carries.

{rankings}
"""


def page(found: Sequence[Search], rankings: Sequence[RankingRow]) -> str:
    """Return the page docs/results/kairos.md."""
    by_model = {m: len({x.seed for x in found if x.model == m}) for m in MODELS}
    counted = ", ".join(f"{model} {count}" for model, count in by_model.items() if count)
    return HEAD.format(
        seeds=f"Seeds by model: {counted}.",
        capacities="\n".join(_capacities(found)),
        ratios="\n".join(_ratios(found)),
        rankings="\n".join(_rankings(rankings)),
    )


def _capacities(found: Sequence[Search]) -> list[str]:
    rows = ("kairos", "fcfs", "earliest", "threshold", HOMOGENEOUS)
    lines = [f"| model | {' | '.join(rows)} |", "| --- " * (len(rows) + 1) + "|"]
    for model in MODELS:
        cells = [_cell(found, model, row) for row in rows]
        if any(cell != "-" for cell in cells):
            lines.append(f"| {model} | {' | '.join(cells)} |")
    return lines


def _cell(found: Sequence[Search], model: str, row: str) -> str:
    these = [each for each in found if (each.model, each.row) == (model, row)]
    if not these:
        return "-"
    mix = "+".join(str(n) for n in these[0].mix)
    return f"{_qps(these, row):.0f}/s on {mix}"


def _qps(these: Sequence[Search], row: str) -> float:
    """Return the mean over seeds; homogeneous mixes are scaled up to the full budget."""
    mean = sum(each.qps for each in these) / len(these)
    return mean * 2.5 / (4 * 0.526) if row == HOMOGENEOUS else mean


def _ratios(found: Sequence[Search]) -> list[str]:
    lines = [f"| over | {' | '.join(MODELS)} |", "| --- " * (len(MODELS) + 1) + "|"]
    by: dict[tuple[str, str], list[Search]] = {}
    for each in found:
        by.setdefault((each.model, each.row), []).append(each)
    for row, prototype in PROTOTYPE.items():
        cells = [_ratio(by, model, row, prototype[at], at) for at, model in enumerate(MODELS)]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _ratio(
    by: Mapping[tuple[str, str], list[Search]], model: str, row: str, prototype: float, at: int
) -> str:
    ours, other = by.get((model, "kairos")), by.get((model, row))
    if not ours or not other or _qps(other, row) == 0:
        return "not run"
    ratio = _qps(ours, "kairos") / _qps(other, row)
    must = MUST[row][at] if row in MUST else prototype * 0.98
    shown = f"{ratio:.2f}" if ratio >= must else f"**{ratio:.2f}**"
    return f"{shown} ({prototype:.2f}, must {must:.2f})"


def _rankings(rankings: Sequence[RankingRow]) -> list[str]:
    lines = ["| model | bound | place | first | of the bound |", "| --- | --- | --- | --- | --- |"]
    return lines + [
        f"| {r.model} | {r.bound} | {r.place} | {r.first_share:.3f} | {r.highest_share:.3f} |"
        for r in rankings
    ]
