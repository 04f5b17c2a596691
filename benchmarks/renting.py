"""Rent devices as demand and sizes change, in virtual time, on the EC2 types of Kairos' paper.

    python -m benchmarks.renting DATA_DIR [--models rm2 dien] [--scenario ramp sizes] [--json]

``ramp``: demand climbs from 20 to 100 % and falls back, against the cheapest fixed mix whose bound
reaches the peak with the same headroom. ``sizes``: the sizes of queries change from the paper's
log-normal mixture to N(400, 150) in mid-run, at constant demand. The peak, and the demand of
``sizes``, are parts of the bound of the best mix within the budget. The nodes, the control app and
the decisions are those of a live run; hops take what they take on a local broker.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.papers.kairos import MODELS, write
from benchmarks.papers.kairos_picks import normal_sizes
from control.policies.kairos.provisioning import Pool, cheapest, rank
from control.policies.kairos.query_sizes import SizeDistribution, parsed
from headrace.arrivals.arrival_processes import Rates, Recorded, from_rates
from headrace.config.cluster import SUPERVISOR
from headrace.config.cluster_cost import cost_per_hour
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.policy_options import with_policies
from headrace.planning.device_mix import MixRequest, counts_by_type, pool_of, with_mix
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Ended, simulated
from schemas.effects import Effect, Event, Scale

POLICY = "kairos:headroom=1.15"
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
    """An observer: when which numbers of devices were asked for."""

    rows: list[tuple[float, str, int]] = field(default_factory=list)

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self.rows += [(now, e.type, e.count) for e in effects if isinstance(e, Scale)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run. ``attainment`` is the share of all queries answered within the SLO, ``usd_per_h``
    the mean cost; ``changes`` are the devices asked for, with seconds since the first arrival."""

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


def ramp(file: PipelineFile, pool: Pool, model: str, seed: int) -> list[Row]:
    """Return the rows of the rented and the fixed mix under a demand that climbs and falls."""
    peak = PEAK * rank(pool, BUDGET, top=1).best[0].bound_qps
    up = np.linspace(LEAST, 1.0, RAMP_S) * peak
    rates = Rates(tuple(float(rate) for rate in (*up, *up[::-1])))
    run = Run(file=file, policy=POLICY, seed=seed, arrivals=rates, sizes=pool.sizes)
    return [
        _played(replace(run, file=_rented(file, pool, LEAST * peak)), model, "ramp", "rented"),
        _played(replace(run, file=_fixed(file, pool, peak)), model, "ramp", "fixed"),
    ]


def other_sizes(file: PipelineFile, pool: Pool, model: str, seed: int) -> list[Row]:
    """Return the rows of the rented mix, and of the one for the first sizes, kept."""
    demand = STEADY * rank(pool, BUDGET, top=1).best[0].bound_qps
    rng = np.random.default_rng(seed)
    times = from_rates([demand] * (2 * SIZES_S), rng)
    before = int(np.searchsorted(times, SIZES_S))
    after = parsed(normal_sizes(*AFTER), "sizes")
    drawn = (*_drawn(pool.sizes, before, rng), *_drawn(after, len(times) - before, rng))
    run = Run(file=file, policy=POLICY, seed=seed, arrivals=Recorded(times, drawn))
    return [
        _played(replace(run, file=_rented(file, pool, demand)), model, "sizes", "rented"),
        _played(replace(run, file=_fixed(file, pool, demand)), model, "sizes", "fixed"),
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
    """Return the file that begins with that mix and rents."""
    started = _fixed(file, pool, demand_qps)
    return replace(started, cluster=replace(started.cluster, scale=SUPERVISOR))


def _played(run: Run, model: str, scenario: str, devices: str) -> Row:
    scaled = Scaled()
    ended: Ended = simulated(run, lambda sent: None, [scaled])
    cost = ended.usd_per_h or cost_per_hour(run.file.cluster) or 0.0
    changes = [(round(at - ended.first_s, 1), name, n) for at, name, n in scaled.rows]
    return Row(
        model=model, scenario=scenario, devices=devices, queries=ended.queries,
        attainment=round(1 - (ended.metrics.violation or 0.0), 5), usd_per_h=round(cost, 4),
        changes=changes,
    )  # fmt: skip


SCENARIOS = {"ramp": ramp, "sizes": other_sizes}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line, or one JSON object, per run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.renting")
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["rm2", "dien"])
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        write(options.data, Path(folder))
        for model in options.models:
            file = pipeline(Path(folder), model)
            pool = pool_of(file, MixRequest())[0]
            for name in options.scenario:
                for row in SCENARIOS[name](file, pool, model, options.seed):
                    print(json.dumps(asdict(row)) if options.json else text(row), flush=True)
    return 0


def text(row: Row) -> str:
    """Return a row for people."""
    return (
        f"{row.model} {row.scenario} {row.devices}: {row.attainment:.2%} of {row.queries:,} in "
        f"time, {row.usd_per_h:.3f} $/h, {len(row.changes)} changes"
    )


if __name__ == "__main__":
    sys.exit(main())
