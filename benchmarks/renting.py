"""Rent devices as demand and sizes change, on the EC2 types of Kairos' paper.

    python -m benchmarks.renting DATA_DIR [--models rm2 dien] [--scenario ramp sizes]
        [--ramp 300] [--live] [--json]

``ramp``: demand climbs from 20 to 100 % and falls back, against the cheapest fixed mix whose bound
reaches the peak with the same headroom. ``sizes``: the sizes of queries change from the paper's
log-normal mixture to N(400, 150) in mid-run, at constant demand. The peak, and the demand of
``sizes``, are parts of the bound of the best mix within the budget. Runs are in virtual time: the
nodes, the control app and the decisions are those of a live run, and hops take as long as on a
local broker. With ``--live`` they are live, on their own broker: `headrace up` starts and ends the
workers, on emulated devices. A device costs its price from its request on.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import yaml

from benchmarks.papers.kairos import MODELS, write
from benchmarks.papers.kairos_cases import normal_sizes
from control.policies.kairos.provisioning import Pool, cheapest, rank
from control.policies.kairos.query_sizes import SizeDistribution, parsed_sizes
from headrace.arrivals.arrival_processes import Rates, Recorded, from_rates
from headrace.config.cluster import SUPERVISOR
from headrace.config.cluster_cost import cost_per_hour
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.policy_options import with_policies
from headrace.fidelity.live_run import live_environment, live_figures, play, sized
from headrace.planning.device_mix import MixRequest, counts_by_type, pool_of, with_mix
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Ended, simulated
from headrace.terminal import progress
from schemas.effects import Effect, Event, Scale

POLICY = "kairos:headroom=1.15"
POLICY_NAME = "renting"  # in a file
BUDGET = 2.5  # $ per hour
PEAK = 0.8  # of the bound of the best mix within the budget
LEAST = 0.2  # of the peak
STEADY = 0.4  # of the same bound, where the sizes change
BOOT_S = 10.0
RAMP_S = 300  # up, and as long down
SIZES_S = 120  # before the change, and after it
AFTER = (400, 150)  # mean and standard deviation of the sizes after the change


@dataclass
class Scaled:
    """An observer that records when each number of devices was requested."""

    rows: list[tuple[float, str, int]] = field(default_factory=list)

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self.rows += [(now, e.type, e.count) for e in effects if isinstance(e, Scale)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run. ``attainment`` is the share of all queries answered within the SLO, ``usd_per_h``
    the mean cost; ``changes`` are the requested devices, with seconds since the first arrival."""

    model: str
    scenario: str
    devices: str
    queries: int
    attainment: float
    usd_per_h: float
    changes: list[tuple[float, str, int]]


def pipeline(folder: Path, model: str) -> PipelineFile:
    """Return the paper's pipeline, whose devices are rented while it runs."""
    file = with_policies(read_pipeline_file(folder / f"{model}.yaml"), (POLICY,))
    types = tuple(replace(each, boot_s=BOOT_S) for each in file.cluster.types)
    return replace(file, cluster=replace(file.cluster, types=types, budget=BUDGET))


def ramp(file: PipelineFile, pool: Pool, seed: int, seconds: int) -> list[tuple[str, Run]]:
    """Return the runs of the rented and the fixed mix under a demand that climbs and falls."""
    peak = PEAK * rank(pool, BUDGET, top=1).best[0].bound_qps
    up = np.linspace(LEAST, 1.0, seconds) * peak
    rates = Rates(tuple(float(rate) for rate in (*up, *up[::-1])))
    run = Run(file=file, policy=POLICY, seed=seed, arrivals=rates, sizes=pool.sizes)
    return [
        ("rented", replace(run, file=_rented(file, pool, LEAST * peak))),
        ("fixed", replace(run, file=_fixed(file, pool, peak))),
    ]


def other_sizes(file: PipelineFile, pool: Pool, seed: int, _ramp: int) -> list[tuple[str, Run]]:
    """Return the runs of the rented mix, and of the one for the first sizes, kept."""
    demand = STEADY * rank(pool, BUDGET, top=1).best[0].bound_qps
    rng = np.random.default_rng(seed)
    times = from_rates([demand] * (2 * SIZES_S), rng)
    before = int(np.searchsorted(times, SIZES_S))
    after = parsed_sizes(normal_sizes(*AFTER), "sizes")
    drawn = (*_drawn(pool.sizes, before, rng), *_drawn(after, len(times) - before, rng))
    run = Run(file=file, policy=POLICY, seed=seed, arrivals=Recorded(times, drawn))
    return [
        ("rented", replace(run, file=_rented(file, pool, demand))),
        ("fixed", replace(run, file=_fixed(file, pool, demand))),
    ]


def _drawn(sizes: SizeDistribution, count: int, rng: np.random.Generator) -> list[int]:
    return [int(each) for each in rng.choice(sizes.sizes, count, p=sizes.probabilities)]


def _fixed(file: PipelineFile, pool: Pool, demand_qps: float) -> PipelineFile:
    """Return the file with the cheapest mix for a demand."""
    found = cheapest(pool, demand_qps * _headroom(file))
    assert found is not None, "the budget affords the peak"
    return with_mix(file, counts_by_type(pool, found.counts))


def _headroom(file: PipelineFile) -> float:
    return next(each.headroom for each in file.pipeline.policies if each.name == POLICY)


def _rented(file: PipelineFile, pool: Pool, demand_qps: float) -> PipelineFile:
    """Return the file that starts with that mix and rents."""
    started = _fixed(file, pool, demand_qps)
    return replace(started, cluster=replace(started.cluster, scale=SUPERVISOR))


def played(run: Run, model: str, scenario: str, devices: str) -> Row:
    """Play a run in virtual time."""
    scaled = Scaled()
    ended: Ended = simulated(run, lambda sent: None, [scaled])
    cost = ended.usd_per_h or cost_per_hour(run.file.cluster) or 0.0
    changes = [(round(at - ended.first_s, 1), name, n) for at, name, n in scaled.rows]
    return Row(
        model=model, scenario=scenario, devices=devices, queries=ended.queries,
        attainment=round(1 - (ended.metrics.violation or 0.0), 5), usd_per_h=round(cost, 4),
        changes=changes,
    )  # fmt: skip


def live(run: Run, model: str, scenario: str, devices: str) -> Row:
    """Play a run with workers that `headrace up` starts and ends."""
    times = run.arrivals.drawn(np.random.default_rng(run.seed))
    queries = run.arrivals if isinstance(run.arrivals, Recorded) else Recorded(times)
    path = written(run.file)
    with (
        live_environment(read_pipeline_file(path), POLICY_NAME, 1.0) as system,
        progress(f"{model}, {scenario}, {devices}", len(times)) as advance,
    ):
        play(
            system,
            sized(run.file, queries, run.seed),
            lambda at, sent: advance(sent, f"{len(at.answers)} answers"),
            run.seed,
        )
        figures = live_figures(system, times)
    ends_s = system.began_s + float(times[-1])
    wanted = [(plan.issued_s, dict(plan.mix)) for plan in system.plans if plan.mix]
    mixes = [(system.began_s, dict(run.file.cluster.devices)), *wanted]
    return Row(
        model=model, scenario=scenario, devices=devices, queries=len(times),
        attainment=round(1 - (figures.violation or 0.0), 5),
        usd_per_h=round(usd_per_h(run.file, mixes, system.began_s, ends_s), 4),
        changes=[
            (round(at_s - system.began_s, 1), name, mix[name])
            for (_, before), (at_s, mix) in pairwise(mixes)
            for name in mix
            if mix[name] != before.get(name, 0)
        ],
    )  # fmt: skip


def written(file: PipelineFile) -> Path:
    """Write a file's devices and policy beside the paper's; return the path."""
    cluster, document = file.cluster, yaml.safe_load(file.path.read_text())
    section = document["cluster"]
    for each in cluster.types:
        section["types"][each.name]["boot"] = f"{each.boot_s:g}s"
    section |= {"start": dict(cluster.devices), "scale": cluster.scale, "budget": BUDGET}
    document["policies"] = {POLICY_NAME: {"kind": "kairos", "headroom": _headroom(file)}}
    document["policy"] = POLICY_NAME
    path = file.path.with_name(f"{file.path.stem}.live.yaml")
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def usd_per_h(
    file: PipelineFile, mixes: Sequence[tuple[float, dict[str, int]]], from_s: float, until_s: float
) -> float:
    """Return the mean cost of devices asked for; each mix holds until the next one."""
    prices = {each.name: each.price for each in file.cluster.types}
    bounded = [(min(max(at_s, from_s), until_s), mix) for at_s, mix in mixes]
    spent = sum(
        (next_s - at_s) * sum(prices[name] * count for name, count in mix.items())
        for (at_s, mix), (next_s, _) in pairwise([*bounded, (until_s, {})])
    )
    return spent / (until_s - from_s)


SCENARIOS = {"ramp": ramp, "sizes": other_sizes}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line, or one JSON object, per run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.renting")
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["rm2", "dien"])
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--ramp", type=int, default=RAMP_S, help="seconds up, and as long down")
    parser.add_argument("--live", action="store_true", help="live, not in virtual time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    plays = live if options.live else played
    with tempfile.TemporaryDirectory() as folder:
        write(options.data, Path(folder))
        for model in options.models:
            file = pipeline(Path(folder), model)
            pool = pool_of(file, MixRequest())[0]
            for name in options.scenario:
                for devices, run in SCENARIOS[name](file, pool, options.seed, options.ramp):
                    row = plays(run, model, name, devices)
                    print(json.dumps(asdict(row)) if options.json else text(row), flush=True)
    return 0


def text(row: Row) -> str:
    """Return a row as text."""
    return (
        f"{row.model} {row.scenario} {row.devices}: {row.attainment:.2%} of {row.queries:,} in "
        f"time, {row.usd_per_h:.3f} $/h, {len(row.changes)} changes"
    )


if __name__ == "__main__":
    sys.exit(main())
