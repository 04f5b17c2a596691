"""Calibrate and predict on machines that are known, as certificates do on a live one.

    nice -n 10 python -m benchmarks.known_worlds [--worlds NAME ...] [--calibrations 4]
        [--simulations 4] [--runs 24] [--seconds 40] [--cases POLICY:QPS ...] [--processes N]

The postcode pipeline is played in virtual time on machines of ``benchmarks/known_machine.py``. Each
is calibrated as ``headrace calibrate --rate 12`` does (under ``loki``, in four phases of
``--seconds``), several times. Every calibration predicts the cases ``CASES`` by the mean of its
simulations. The truth are ``--runs`` plays on the machine itself.

A row has the true mean of a run and its standard deviation, the error of the mean prediction with
its standard error, and the share of certificates that would be met: each calibration against three
plays at a time, by the bounds of ``headrace fidelity``. *Itself*: the share if as many other plays
on the machine itself predict; chance alone decides on the rest. Worlds whose name begins with
``other`` were not looked at while the simulation was made.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.emulated_cluster import SHIPPED
from benchmarks.known_machine import KnownWorld
from headrace.arrivals.arrival_processes import Recorded, poisson
from headrace.cells import columns
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.fidelity.calibration_run import CalibrationRequest, rates_in_turn, rates_of
from headrace.fidelity.certificate import METRICS, MISSED, judged, predicted, values_of
from headrace.fidelity.world_fit import fitted
from headrace.results.figures import Figures
from headrace.simulation.paid_batches import own_rates
from headrace.simulation.run_input import Run, real_workers
from headrace.simulation.simulation_run import figures_of, simulated
from schemas.effects import Effect, Event, Send
from schemas.records import Answer, Report
from streams.simulated.world import World

CASES = (("accurate", 12.0), ("loki", 12.0), ("loki", 6.0), ("loki", 18.0))  # policy, queries/s
RATE_QPS = 12.0  # calibrated, and half of it
VARIANTS = {"locate": "deep", "read": "committee"}  # of both policies at these rates
BATCHES = 8  # the largest batch whose median is given
LIVE, TRIES = 3, 40  # runs of a certificate; certificates for each calibration
SHOWN = ("p50_ms", "p95_ms", "p99_ms")


@cache
def postcode() -> PipelineFile:
    """Return the shipped postcode pipeline."""
    return read_pipeline_file(SHIPPED)


@cache
def worlds() -> dict[str, KnownWorld]:
    """Return the known machines by name."""
    table = load_profile(postcode())
    medians_s = {
        task: [table.latency_s(task, name, "cpu", size, "p50") for size in range(1, BATCHES + 1)]
        for task, name in VARIANTS.items()
    }
    settings: dict[str, dict[str, float]] = {
        "quiet": {},
        "hops by rate": {"by_rate": 0.15, "hop_sigma": 0.7},
        "rare pauses": {"pause_every_s": 5.0, "pause_for_s": 0.08},
        "short pauses": {"pause_every_s": 1.0, "pause_for_s": 0.02},
        "contended": {"contention": 0.5, "start_contention": 1.0, "stretch": 1.3},
        "lagging": {"lag_s": 0.003, "commit_s": 0.3, "long_hops": 0.01},
        "slow spells": {"slow_every_s": 1.5, "slow_for_s": 0.2, "slow": 2.5},
        "blocked": {"stretch": 1.8, "charged": 1.2},
        "slow": {"stretch": 2.6, "stretch_sigma": 0.25, "charged": 2.3, "hop_s": 0.0018},
        "cold": {"stretch": 2.0, "charged": 1.9, "cold": 1.35, "hop_s": 0.0018},
        "other cold": {"stretch": 1.5, "charged": 1.4, "cold": 1.8, "contention": 0.2},
        "other slow": {
            "stretch": 2.4, "stretch_sigma": 0.35, "charged": 2.2, "contention": 0.15,
            "pause_every_s": 10.0, "pause_for_s": 0.02,
        },
        "other quiet": {"hop_s": 0.0018, "stretch": 2.0, "stretch_sigma": 0.2, "charged": 2.4},
        "other hops by rate": {"by_rate": 0.3, "hop_s": 0.001},
        "other rare pauses": {"pause_every_s": 9.0, "pause_for_s": 0.12},
        "other pauses": {"pause_every_s": 2.0, "pause_for_s": 0.03},
        "other contended": {
            "contention": 0.8, "stretch": 1.2, "start_contention": 2.0, "pause_every_s": 3.0,
            "pause_for_s": 0.015,
        },
        "other lagging": {"lag_s": 0.002, "commit_s": 0.15, "long_hops": 0.005},
        "other spells": {
            "contention": 0.3, "slow_every_s": 10.0, "slow_for_s": 5.0, "slow": 1.5,
            "pause_every_s": 4.0, "pause_for_s": 0.025,
        },
        "other blocked": {
            "stretch": 1.9, "stretch_sigma": 0.25, "contention": 0.3, "charged": 1.4,
            "charged_sigma": 0.2,
        },
    }  # fmt: skip
    return {
        name: KnownWorld(name=name, medians_s=medians_s, **values)
        for name, values in settings.items()
    }


# ---------------------------------------------------------------------- calibrate and play


class Written:
    """An observer that keeps the answers and the reports of a run."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.reports: list[Report] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for each in effects:
            if type(each) is Send and type(each.record) is Answer:
                self.answers.append(each.record)
            elif type(each) is Send and type(each.record) is Report:
                self.reports.append(each.record)


def calibrated(known: KnownWorld, seed: int, seconds: float) -> World:
    """Return the calibration of a known machine, as ``headrace calibrate`` measures it."""
    file = postcode()
    request = CalibrationRequest(file=file, rates_qps=(RATE_QPS,), seconds=seconds, seed=seed)
    rng, workers, table = np.random.default_rng(seed), real_workers(file), load_profile(file)
    phases = []
    for at, rate in enumerate(rates_in_turn(rates_of(request), request.passes)):
        written = Written()
        run = a_run(known, "loki", Recorded(poisson(rate, seconds, rng)), 1000 * (at + 1) + seed)
        from_s = simulated(run, lambda sent: None, (written,)).first_s
        phases.append(
            fitted(
                written.answers, table, workers, dilate=1.0, from_s=from_s,
                until_s=from_s + seconds, rate_qps=rate, rates=own_rates(file, workers),
                reports=written.reports,
            )
        )  # fmt: skip
    return World(tuple(phases))


def a_run(world: Any, policy: str, queries: Recorded, seed: int) -> Run:
    """Return a run that begins at a part of a second by its seed."""
    return Run(
        file=postcode(), policy=policy, seed=seed, arrivals=queries, world=world,
        phase_s=seed * 0.382 % 1,
    )  # fmt: skip


def played(world: Any, case: tuple[str, float], seconds: float, seed: int) -> Figures:
    """Return the figures of one run of a case; its arrivals are those of all runs of the case."""
    policy, rate_qps = case
    times = poisson(rate_qps, seconds, np.random.default_rng(2))
    return figures_of(a_run(world, policy, Recorded(times), seed), lambda sent: None)


# ---------------------------------------------------------------------- judge


def met(true: Sequence[Figures], predicts: Sequence[Figures] | int, seed: int) -> float:
    """Return the share of certificates that are met, each on ``LIVE`` of the true runs.

    ``predicts``: the simulations that predict, or how many other true runs predict in their place.
    """
    rng, found = np.random.default_rng(seed), 0
    for _ in range(TRIES):
        order = [true[at] for at in rng.permutation(len(true))]
        other = order[LIVE : LIVE + predicts] if isinstance(predicts, int) else predicts
        live = [values_of(each) for each in order[:LIVE]]
        found += all(metric.verdict != MISSED for metric in judged(predicted(other), live, {}))
    return found / TRIES


def row(
    name: str, case: tuple[str, float], true: list[Figures], simulations: list[list[Figures]]
) -> tuple[str, ...]:
    """Return the row of a case: of true runs, and of simulations by calibration."""
    cells = [name, f"{case[0]} {case[1]:g}/s"]
    for metric in METRICS:
        here = np.array([getattr(each, metric) for each in true], dtype=float)
        means = np.array([np.mean([getattr(f, metric) for f in sims]) for sims in simulations])
        unit = 100.0 / here.mean() if metric in SHOWN else 100.0
        error = (means.mean() - here.mean()) * unit
        chance = float(np.hypot(_error_of(here), _error_of(means))) * unit
        if metric in SHOWN:
            cells.append(f"{here.mean():.1f} ({here.std(ddof=1):.1f})")
        if metric in (*SHOWN, "violation", "accuracy"):
            cells.append(f"{error:+.1f} ± {chance:.1f}")
        if metric == "devices_mean":
            cells.append(f"{means.mean() - here.mean():+.2f}")
    shares = [met(true, sims, at) for at, sims in enumerate(simulations)]
    cells += [f"{np.mean(shares):.0%}", f"{met(true, len(simulations[0]), 0):.0%}"]
    return tuple(cells)


def _error_of(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


HEAD = (
    "machine", "case", "p50, ms (sd)", "error, %", "p95, ms (sd)", "error, %", "p99, ms (sd)",
    "error, %", "violation, points", "accuracy, points", "devices", "met", "itself",
)  # fmt: skip


# ---------------------------------------------------------------------- run


def _calibrate(asked: tuple[str, int, float]) -> World:
    name, seed, seconds = asked
    return calibrated(worlds()[name], seed, seconds)


def _play(asked: tuple[Any, tuple[str, float], float, int]) -> Figures:
    return played(*asked)


def studied(pool: Any, name: str, given: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a machine."""
    known, seconds = worlds()[name], given.seconds
    seeds = range(1, given.calibrations + 1)
    measured = pool.map(_calibrate, [(name, seed, seconds) for seed in seeds], chunksize=1)
    for case in given.cases:
        asked = [(known, case, seconds, 5000 + at) for at in range(given.runs)]
        for at, world in enumerate(measured):
            asked += [(world, case, seconds, 100 * at + k) for k in range(given.simulations)]
        found = iter(pool.map(_play, asked, chunksize=1))
        true = list(islice(found, given.runs))
        yield row(name, case, true, [list(islice(found, given.simulations)) for _ in measured])


def _case(text: str) -> tuple[str, float]:
    policy, _, rate = text.partition(":")
    return policy, float(rate)


def main() -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(description="Predictions on known machines.")
    parser.add_argument("--worlds", nargs="+", choices=tuple(worlds()), default=tuple(worlds()))
    parser.add_argument("--calibrations", type=int, default=4)
    parser.add_argument("--simulations", type=int, default=4)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cases", nargs="+", type=_case, default=CASES, metavar="POLICY:QPS")
    given = parser.parse_args()
    found = []
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for name in given.worlds:
            for cells in studied(pool, name, given):
                found.append(cells)
                print(" | ".join(cells), flush=True)
    print(columns([HEAD, *found], left=(0, 1)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
