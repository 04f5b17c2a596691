"""``headrace compare``: compare policies x seeds on the same arrivals, with intervals.

Arrivals and draws of a seed are common to all policies (common random numbers), so differences
are paired by seed (``headrace/results/statistics.py``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.config.pipeline_file import PipelineFile
from headrace.results.statistics import Mean, difference, mean_of
from headrace.results.time_series import Recorder, TimeSeries, width_s
from headrace.simulation.batch_runs import Row, SimulationRequest, distinct, on_all_cores, runs
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Advance, simulated
from headrace.simulation.static_best import NAME, StaticSearch, search, yielded

# The figures that are compared, in order: keys of a run's row.
FIGURES = (
    "violation", "branch_violation", "accuracy", "accuracy_leaf_mean", "yield", "devices_mean",
    "p50_ms", "p95_ms", "p99_ms", "late", "dropped", "failed", "refused", "lost",
)  # fmt: skip
COSTS = ("usd_per_h", "usd_per_1000_answers")  # where cluster.types has prices
OF_QUERIES = ("late", "dropped", "failed", "refused", "lost")  # reported as shares of the queries


@dataclass(frozen=True, slots=True)
class Played:
    """A finished run: its row and its time series."""

    row: Row
    recording: TimeSeries


@dataclass(frozen=True, slots=True)
class Comparison:
    """The runs of each policy by seed; policies in the order of the request."""

    file: PipelineFile
    seeds: tuple[int, ...]
    runs: Mapping[str, tuple[Played, ...]]
    search: StaticSearch | None = None  # the search for static-best, if requested

    @property
    def names(self) -> tuple[str, ...]:
        """The figures that the runs have."""
        priced = COSTS[0] in next(iter(self.runs.values()))[0].row
        return (*FIGURES, *COSTS) if priced else FIGURES

    @property
    def against(self) -> str:
        """The policy that the others are compared with."""
        return next(iter(self.runs))

    def figure(self, policy: str, name: str) -> list[float] | None:
        """Return a figure of each of a policy's runs; None if it is unknown for one of them."""
        values = [_figure(each.row, name) for each in self.runs[policy]]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else None

    def mean(self, policy: str, name: str) -> Mean | None:
        """Return a figure's mean with its interval; None if the figure is unknown."""
        values = self.figure(policy, name)
        return None if values is None else mean_of(values)

    def difference(self, policy: str, name: str) -> Mean | None:
        """Return a figure's difference from the first policy's, paired by seed."""
        values, others = self.figure(policy, name), self.figure(self.against, name)
        return None if values is None or others is None else difference(values, others)


def compare(file: PipelineFile, asked: SimulationRequest) -> Comparison:
    """Play the requested runs and compare them; ``static-best`` may be among the policies.

    Raises ``PipelineError``, ``ArrivalsError``, ``PlanError`` or ``click.UsageError``.
    """
    names = tuple(distinct("policy", asked.policies or (file.pipeline.policy,)))
    # static-best is unknown before its search; everything else is checked before anything runs.
    own = {policy.name for policy in file.pipeline.policies}
    given = [name for name in names if name != NAME or name in own]
    return compared(runs(file, replace(asked, policies=given or ("static",))), names)


def compared(wanted: Sequence[Run], names: Sequence[str]) -> Comparison:
    """Play runs, and search and play ``static-best`` if it is in ``names`` and not in the runs.

    Raises ``PipelineError`` or ``PlanError``.
    """
    found = None
    if NAME in names and all(run.policy != NAME for run in wanted):
        found = search(wanted[0], played_search)
        wanted = _with_best(wanted, names, found)
    played = on_all_cores(play, wanted, "comparing")
    by_policy: dict[str, tuple[Played, ...]] = {}
    for run, each in zip(wanted, played, strict=True):
        by_policy[run.policy] = (*by_policy.get(run.policy, ()), each)
    seeds = tuple(dict.fromkeys(run.seed for run in wanted))
    return Comparison(wanted[0].file, seeds, by_policy, found)


def _with_best(wanted: Sequence[Run], names: Sequence[str], found: StaticSearch) -> list[Run]:
    """Return the runs of all named policies, including the best fixed choice."""
    file = wanted[0].file
    policies = (*file.pipeline.policies, found.best)
    file = replace(file, pipeline=replace(file.pipeline, policies=policies))
    seeds = dict.fromkeys(run.seed for run in wanted)
    return [
        replace(wanted[0], file=file, policy=name, seed=seed) for name in names for seed in seeds
    ]


def play(run: Run, advance: Advance) -> Played:
    """Play one run and record its time series."""
    times = run.arrivals.drawn(np.random.default_rng(run.seed))
    width = width_s(float(times[-1]) if len(times) else 1.0)
    recorders: list[Recorder] = []

    def watch(metrics: Any) -> Recorder:
        recorders.append(Recorder(metrics, width))
        return recorders[-1]

    ended = simulated(run, advance, watch=watch)
    return Played(ended.as_json(run), recorders[0].recording(ended.first_s, ended.last_s))


def played_search(asked: Sequence[Run]) -> list[Row]:
    """Play the runs of the search for static-best; return their rows."""
    return on_all_cores(_row, asked, f"searching {NAME}")


def _row(run: Run, advance: Advance) -> Row:
    return simulated(run, advance).as_json(run)


def as_json(made: Comparison) -> dict[str, Any]:
    """Return the object that ``headrace compare --json`` prints."""
    document: dict[str, Any] = {
        "pipeline": made.file.pipeline.name,
        "seeds": list(made.seeds),
        "against": made.against,
        "policies": [
            {"policy": name, **{key: _mean(made.mean(name, key)) for key in made.names}}
            for name in made.runs
        ],
        "differences": [
            {"policy": name, **{key: _mean(made.difference(name, key)) for key in made.names}}
            for name in made.runs
            if name != made.against
        ],
        "runs": [each.row for played in made.runs.values() for each in played],
    }
    if made.search is not None:
        document["static_best"] = {
            "replicas": dict(made.search.best.replicas),
            "batch": dict(made.search.best.batch),
            "tried": [
                {"demand_qps": each.demand_qps, "yield": round(each.yielded, 6),
                 **{key: each.row[key] for key in ("violation", "branch_violation", "accuracy")}}
                for each in made.search.tried
            ],
        }  # fmt: skip
    return document


def _mean(found: Mean | None) -> dict[str, Any] | None:
    if found is None:
        return None
    low, high = (
        (None, None)
        if found.half is None
        else (round(found.value - found.half, 6), round(found.value + found.half, 6))
    )
    return {"mean": round(found.value, 6), "low": low, "high": high}


def _figure(row: Row, name: str) -> float | None:
    if name == "yield":
        return yielded(row)
    value = row.get(name)  # a cost is missing where the cluster names no types
    if value is None:
        return None
    return value / row["queries"] if name in OF_QUERIES and row["queries"] else float(value)
