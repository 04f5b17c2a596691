"""``headrace simulate``: play policies x seeds on the same arrivals on all cores, as a table."""

import gc
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np

from headrace.arrivals.arrival_processes import Arrivals, Bursts, Recorded, Renewal
from headrace.arrivals.arrivals_file import read_workload
from headrace.arrivals.load_phases import Phases
from headrace.cells import columns
from headrace.config.pipeline_file import PipelineFile
from headrace.config.policy_options import with_policies
from headrace.config.sizes_file import size_distribution
from headrace.roles.heap import collect_seldom
from headrace.simulation.chrome_trace import ChromeTrace
from headrace.simulation.faults import read_faults
from headrace.simulation.overrides import Devices, known_classes, overridden
from headrace.simulation.run_input import Run, devices
from headrace.simulation.simulation_run import Advance as Sent
from headrace.simulation.simulation_run import simulated
from headrace.terminal import Advance, progress
from streams.control_app.solver_pool import follow_parent
from streams.simulated.world import World

LOOK_S = 0.2  # interval between progress updates of other processes

Row = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """A batch of simulations: policies x seeds on one workload, with overrides of the file.

    Exactly one of ``arrivals`` (a file, recorded times or phases), ``from_topic`` and ``rate_qps``
    with ``seconds`` is given. Without ``policies`` the file's is meant, without ``seeds`` seed 0.
    """

    policies: Sequence[str] = ()
    seeds: Sequence[int] = ()
    arrivals: Path | Recorded | Phases | None = None
    from_topic: str | None = None
    bootstrap: str | None = None  # of the topic
    rate_qps: float | None = None
    seconds: float | None = None
    cv: float = 1.0
    burst: float | None = None
    faults: Path | None = None
    random_faults: int = 0
    warm_up_s: float | None = None
    latency: str | None = None  # a quantile of the profile; None: drawn
    solve_s: float | None = None
    devices: Devices = None
    slo_s: float | None = None
    share: float | None = None  # of the devices' time
    world: World | None = None  # a calibration; None: built-in figures
    classes: tuple[tuple[str, float], ...] = ()  # part of the queries by SLO class

    def workload(self) -> Arrivals:
        """Return the arrivals; raise ``click.UsageError`` unless they are given exactly once."""
        given = [
            each for each in (self.arrivals, self.from_topic, self.rate_qps) if each is not None
        ]
        if len(given) != 1:
            raise click.UsageError(
                "give one of --arrivals, --phases, --from-topic, and --rate with --seconds"
            )
        self._check_of_rate()
        if isinstance(self.arrivals, Path):
            return read_workload(self.arrivals)
        if self.arrivals is not None:
            return self.arrivals
        if self.from_topic is not None:
            from headrace.arrivals.from_topic import recorded
            from headrace.broker.connect import reached

            return Recorded(recorded(reached(self.bootstrap), self.from_topic))
        if self.seconds is None or self.rate_qps is None:
            raise click.UsageError("--rate needs --seconds")
        if self.burst is not None:
            return Bursts(rate_qps=self.rate_qps, seconds=self.seconds, factor=self.burst)
        return Renewal(self.rate_qps, self.seconds, self.cv)

    def _check_of_rate(self) -> None:
        """Raise ``click.UsageError`` for options that would have no effect."""
        shapes = {"seconds": self.seconds is not None, "burst": self.burst is not None,
                  "cv": self.cv != 1.0}  # fmt: skip
        for name, given in shapes.items():
            if given and self.rate_qps is None:
                raise click.UsageError(f"--{name} goes with --rate, not with recorded arrivals")
        if shapes["burst"] and shapes["cv"]:
            raise click.UsageError("--burst and --cv exclude each other; leave one out")

    def workload_text(self) -> str:
        """Describe the source of the arrivals: file, topic, or rate."""
        if isinstance(self.arrivals, Path):
            return self.arrivals.name
        if self.arrivals is not None:
            return str(self.arrivals) if isinstance(self.arrivals, Phases) else "recorded times"
        if self.from_topic is not None:
            return f"the topic {self.from_topic}"
        burst = f", bursts of {self.burst:g} times as much" if self.burst else ""
        return f"{self.rate_qps:g}/s for {self.seconds:g} s{burst}"


def runs(file: PipelineFile, asked: SimulationRequest) -> list[Run]:
    """Return the requested runs, by policy, then seed.

    Raises ``PipelineError``, ``ArrivalsError`` or ``click.UsageError`` before anything has run.
    """
    file = overridden(file, asked.devices, asked.slo_s, asked.share)
    policies = distinct("policy", asked.policies or (file.pipeline.policy,))
    seeds = distinct("seed", asked.seeds or (0,))
    file = with_policies(file, policies)
    workload = asked.workload()
    names = tuple(devices(file))
    faults = read_faults(asked.faults, names) if asked.faults else ()
    return [
        Run(
            file=file,
            policy=policy,
            seed=seed,
            arrivals=workload,
            faults=faults,
            random_faults=asked.random_faults,
            warm_up_s=asked.warm_up_s or 0.0,
            latency=asked.latency or "",
            solve_s=asked.solve_s,
            sizes=size_distribution(file),
            world=asked.world,
            classes=known_classes(file, asked.classes),
        )
        for policy in policies
        for seed in seeds
    ]


def played_rows(asked: Sequence[Run], trace: Path | None = None) -> list[Row]:
    """Play all runs; return their rows, in order. ``trace`` is a file for the trace of one run."""
    if trace is None:
        return on_all_cores(_row, asked, "simulating")
    if len(asked) != 1:
        raise click.UsageError("--trace-out shows one run; name one policy and one seed")
    with progress("simulating", _expected(asked[0])) as advance:
        return [_traced(asked[0], trace, advance)]


def of_all(labels: Sequence[Mapping[str, Any]], of_runs: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the rows of all runs, each with its run's label in front."""
    pairs = zip(labels, of_runs, strict=True)
    return [{**label, **row} for label, rows in pairs for row in rows]


def on_all_cores(play: Callable[[Run, Sent], T], asked: Sequence[Run], what: str) -> list[T]:
    """Return the result of ``play`` for each run, in order, played in parallel.

    ``play`` gets a run and a progress function; it is defined at module level, so that other
    processes can import it.
    """
    gc.collect()  # garbage of the caller's process would be frozen with the rest
    collect_seldom()
    with progress(what, sum(map(_expected, asked))) as advance:
        if len(asked) == 1:
            run = asked[0]
            note = f"{run.policy}, seed {run.seed}"
            return [play(run, lambda sent: advance(sent, note))]
        return _side_by_side(play, asked, advance)


def _expected(run: Run) -> int:
    """Return the expected number of queries, from a draw with seed 0."""
    return len(run.arrivals.drawn(np.random.default_rng(0)))


def _row(run: Run, sent: Sent) -> Row:
    return simulated(run, sent).as_json(run)


def _traced(run: Run, path: Path, advance: Advance) -> Row:
    note = f"{run.policy}, seed {run.seed}"
    with ChromeTrace(path) as trace:
        return simulated(run, lambda sent: advance(sent, note), (trace,)).as_json(run)


# ---------------------------------------------------------------------- on every core

_SENT: Any = None  # in a process of the pool: queries sent, by run


def _side_by_side(
    play: Callable[[Run, Sent], T], asked: Sequence[Run], advance: Advance
) -> list[T]:
    # Spawned, so that children do not inherit the parent's modules and open files.
    context = multiprocessing.get_context("spawn")
    sent = context.Array("q", len(asked), lock=False)
    most = min(len(asked), os.cpu_count() or 1)
    with ProcessPoolExecutor(most, context, _share_progress, (sent,)) as pool:
        futures = [pool.submit(_one_of_many, play, at, run) for at, run in enumerate(asked)]
        left = set(futures)
        try:
            while left:
                done, left = wait(left, LOOK_S, FIRST_COMPLETED)
                for future in done:
                    future.result()  # raises a run's error before the others have ended
                advance(sum(sent), f"{len(asked) - len(left)} of {len(asked)} runs done")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def _share_progress(sent: Any) -> None:
    global _SENT
    _SENT = sent
    follow_parent()
    collect_seldom()


def _one_of_many(play: Callable[[Run, Sent], T], number: int, run: Run) -> T:
    def count(sent: int) -> None:
        _SENT[number] = sent

    return play(run, count)


# ---------------------------------------------------------------------- checks and text


def distinct(what: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values; raise ``click.UsageError`` if one is given twice."""
    for at, value in enumerate(values):
        if value in values[:at]:
            raise click.UsageError(f"{what} {value} is given twice; name each once")
    return values


_COLUMNS = (
    ("policy", "policy", "{}"), ("seed", "seed", "{}"), ("queries", "queries", "{}"),
    ("violation", "violation", "{:.2%}"), ("branch_violation", "of branches", "{:.2%}"),
    ("accuracy", "accuracy", "{:.2%}"), ("devices_mean", "devices", "{:.1f}"),
    ("p50_ms", "p50 ms", "{:.1f}"), ("p99_ms", "p99 ms", "{:.1f}"), ("late", "late", "{}"),
    ("dropped", "dropped", "{}"), ("refused", "refused", "{}"), ("lost", "lost", "{}"),
)  # fmt: skip


_SWEPT = (
    ("rate_qps", "rate/s", "{:g}"),
    ("cluster_devices", "cluster", "{}"),
    ("slo_ms", "SLO ms", "{:g}"),
)  # fmt: skip


def rows_text(found: Sequence[Row]) -> str:
    """Return the rows as a text table, with a column in front for each swept value."""
    shown = (*(each for each in _SWEPT if found and each[0] in found[0]), *_COLUMNS)
    lines = [[head for _, head, _ in shown]]
    lines += [
        ["-" if row[key] is None else form.format(row[key]) for key, _, form in shown]
        for row in found
    ]
    text = columns(lines)
    warm_up = {row["warm_up_s"] for row in found if "warm_up_s" in row}
    return text + "".join(f"\nthe first {s:g} s are not counted" for s in warm_up)
