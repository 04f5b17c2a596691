"""Serve queries of unlike sizes live on devices of unlike types, beside the simulation of the same.

    nice -n 5 python -m benchmarks.kairos_live DATA_DIR [--models rm2 wnd]
        [--policies kairos fcfs earliest] [--load 0.8 | --rate QPS] [--seconds 60] [--json]
    nice -n 5 python -m benchmarks.kairos_live --file examples/postcode/sheets.yaml ...

With DATA_DIR these are models of Kairos' artifact on emulated EC2 types; the mix of devices is the
first of the fluid bound's ranking within the paper's budget. With ``--file`` it is a pipeline file
with its own mix (``cluster.start``), which may run real models: profile it on this machine first.
The rate is ``--load`` of the first policy's capacity on the mix, by simulation. Each policy then
gets the same arrivals and sizes: in virtual time, with the hops of a local broker, and live on its
own broker, in ``--dilate`` times slower time, so that two cores carry the load. The exit code is 1
if the live order of two policies differs from the simulated one although their simulated
attainments differ by more than ``APART``, or if a query is lost.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.machine_speed import machine
from benchmarks.papers.kairos import MODELS, write
from headrace.arrivals.arrival_processes import Recorded, poisson
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.fidelity.live_run import live_environment, live_figures, play, sized
from headrace.fidelity.variant_file import as_asked
from headrace.planning.device_mix import MixRequest, counts_by_type, planned_mix
from headrace.results.figures import Figures
from headrace.simulation.capacity_search import CapacityRequest, capacity
from headrace.simulation.overrides import overridden
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import figures_of
from headrace.terminal import progress

BUDGET = 2.5  # $ per hour
APART = 0.02  # of the queries
DILATE = {"rm2": 2.0, "ncf": 60.0, "wnd": 16.0, "mtwnd": 12.0, "dien": 8.0}
WARM_UP_S = 10.0  # of this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A policy on a model's mix. ``attainment``: the share of the queries in time; ``behind_ms``:
    the largest delay of a query behind its arrival, and ``host``: the busy share of the cores."""

    model: str
    policy: str
    mix: dict[str, int]
    rate_qps: float
    dilate: float
    queries: int
    simulated_attainment: float
    live_attainment: float
    simulated_p99_ms: float | None
    live_p99_ms: float | None
    lost: int
    behind_ms: float
    host: float | None


def attainment(figures: Figures) -> float:
    """Return the share of the queries that were answered in time."""
    return 1.0 - figures.violation if figures.violation is not None else 0.0


def mix_of(file: PipelineFile) -> dict[str, int]:
    """Return the first mix of the ranking within the budget, by type, without zeros."""
    found = planned_mix(file, MixRequest(budget=BUDGET, bound="fluid", pick="first"))
    assert found.picked is not None
    counts = counts_by_type(found.pool, found.picked.counts)
    return {name: count for name, count in counts.items() if count}


def capacity_qps(file: PipelineFile, asked: argparse.Namespace) -> float:
    """Return the first policy's capacity on the file's mix, in virtual time."""
    most = capacity(CapacityRequest(file=file, policy=asked.policies[0], seed=asked.seed)).best
    assert most is not None
    return most.qps


def rows(
    plain: PipelineFile, model: str, mix: dict[str, int], dilate: float, asked: argparse.Namespace
) -> Iterator[Row]:
    """Play each policy on a mix of devices, in virtual time and live."""
    file = overridden(plain, mix)
    rate_qps = asked.rate or asked.load * capacity_qps(file, asked)
    warm_up_s, seconds = WARM_UP_S / dilate, (WARM_UP_S + asked.seconds) / dilate
    times = poisson(rate_qps, seconds, np.random.default_rng(asked.seed))
    queries = sized(file, Recorded(times), asked.seed)
    for policy in asked.policies:
        run = Run(
            file=file, policy=policy, seed=asked.seed, arrivals=queries, warm_up_s=warm_up_s,
            dilate=dilate,
        )  # fmt: skip
        virtual = figures_of(run, lambda sent: None)
        with (
            as_asked(plain, policy, mix) as made,
            live_environment(made, policy, dilate) as system,
            progress(f"{model}, {policy}", len(times)) as advance,
        ):
            play(
                system,
                queries,
                lambda at, sent, say=advance: say(sent, f"{len(at.answers)} answers"),
                asked.seed,
            )
            live = live_figures(system, times, warm_up_s)
        yield Row(
            model=model, policy=policy, mix=mix, rate_qps=round(rate_qps, 1),
            dilate=dilate, queries=int((times >= warm_up_s).sum()),
            simulated_attainment=attainment(virtual), live_attainment=attainment(live),
            simulated_p99_ms=virtual.p99_ms, live_p99_ms=live.p99_ms,
            lost=len(times) - len(system.answers), behind_ms=round(system.behind_s * 1e3, 1),
            host=system.host_cpu_share,
        )  # fmt: skip


def every_row(folder: Path, asked: argparse.Namespace) -> Iterator[Row]:
    """Play the file, or each of the artifact's models."""
    if asked.file is not None:
        file = read_pipeline_file(asked.file)
        mix = dict(file.cluster.devices)
        yield from rows(file, file.pipeline.name, mix, asked.dilate or 1.0, asked)
        return
    write(asked.data, folder)
    for model in asked.models:
        file = read_pipeline_file(folder / f"{model}.yaml")
        dilate = DILATE[model] if asked.dilate is None else asked.dilate
        yield from rows(file, model, mix_of(file), dilate, asked)


def wrong(found: Sequence[Row]) -> list[str]:
    """Return the policies of a model whose live order differs from the simulated one, and
    losses."""
    lost = [f"{row.model}, {row.policy}: {row.lost} lost" for row in found if row.lost]
    pairs = [
        sorted(pair, key=lambda row: row.simulated_attainment)
        for pair in combinations(found, 2)
        if pair[0].model == pair[1].model
    ]
    return lost + [
        f"{worse.model}: {worse.policy} is ahead of {better.policy} live"
        for worse, better in pairs
        if better.simulated_attainment - worse.simulated_attainment > APART
        and worse.live_attainment >= better.live_attainment
    ]


def text(row: Row) -> str:
    """Return a line for a terminal."""
    mix = ", ".join(f"{count} {name}" for name, count in row.mix.items())

    def ms(value: float | None) -> str:
        return "-" if value is None else f"{value:.0f} ms"

    return (
        f"{row.model:6} {row.policy:9} {row.rate_qps:6.0f}/s on {mix}, {row.dilate:g} times slower:"
        f" in time live {row.live_attainment:.1%}, simulated {row.simulated_attainment:.1%};"
        f" p99 {ms(row.live_p99_ms)}, {ms(row.simulated_p99_ms)}; {row.queries} queries,"
        f" {row.lost} lost, {row.behind_ms:.1f} ms behind"
    )


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA_DIR", nargs="?")
    parser.add_argument("--file", type=Path, help="a pipeline file with a mix, instead of DATA_DIR")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["rm2", "wnd"])
    parser.add_argument("--policies", nargs="+", default=["kairos", "fcfs", "earliest"])
    parser.add_argument(
        "--load", type=float, default=0.8, help="of the first policy's capacity on the mix"
    )
    parser.add_argument("--rate", type=float, help="queries/s, instead of --load")
    parser.add_argument("--seconds", type=float, default=60.0, help="of this machine's time")
    parser.add_argument("--dilate", type=float, help="for all models")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    asked = parser.parse_args(arguments)
    if (asked.data is None) == (asked.file is None):
        parser.error("give DATA_DIR or --file")
    return asked


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    asked = options(arguments)
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="headrace-kairos-") as folder:
        for row in every_row(Path(folder), asked):
            found.append(row)
            if not asked.json:
                print(text(row), flush=True)
    broken = wrong(found)
    if asked.json:
        listed = [asdict(row) for row in found]
        print(json.dumps({"machine": machine(), "rows": listed, "wrong": broken}))
    else:
        print("; ".join(broken) or "in the order of the simulation, nothing lost")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
