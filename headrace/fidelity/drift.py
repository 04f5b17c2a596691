"""Drift: how much longer batches and hops took in live runs than in the calibration.

A prediction assumes that the machine is as it was when it was calibrated. Its own live runs show
whether it was: the delays of their answers are fitted as those of a calibration are
(``world_fit``), and like is compared with like. A drift excuses no miss; it says what to do.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, fsum, inf, log
from typing import Any

import numpy as np

from control.estimation.operator_paces import common
from streams.simulated.delays import ANY_SIZE, Seen
from streams.simulated.world import Levels, Phase, World

BOUND = 1.1  # a larger factor, or one below its inverse, is a drift
FLOOR_S = 0.0002  # delays that differ by less are alike
MEDIAN, MEAN, CHARGE = "median", "mean", "charge"

Alike = Mapping[Hashable, Seen]  # delays by size of the batch and level of contention


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayDrift:
    """How a quantity of the live runs compares with the calibration.

    ``what``: "batches of read", "hops", ...; ``of``: the median or the mean of their times, or what
    batches were charged. ``factors``, by run: the quantity over that of the nearest calibrated
    phase; 1 if it lies between two phases.
    """

    what: str
    of: str
    factors: tuple[float, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as certificates have it."""
        return {
            "what": self.what, "of": self.of, "factor": round(self.factor, 4),
            "factors": list(self.factors), "drifted": self.drifted,
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "DelayDrift":
        """Return the comparison of ``as_json``; raises ``KeyError`` and ``TypeError``."""
        return cls(what=value["what"], of=value["of"], factors=tuple(value["factors"]))

    @property
    def factor(self) -> float:
        """The geometric mean over the runs."""
        return exp(fsum(map(log, self.factors)) / len(self.factors))

    @property
    def drifted(self) -> bool:
        """Whether the quantity left the calibrated range by more than ``BOUND``."""
        return not 1 / BOUND <= self.factor <= BOUND

    @property
    def sentence(self) -> str:
        """The comparison as a clause."""
        if self.of == CHARGE:
            return f"{self.what} were charged {self.factor:.2f} times the calibrated CPU time"
        often = "on average" if self.of == MEAN else "at the median"
        return f"{self.what} took {self.factor:.2f} times the calibrated time {often}"


def drifts(world: World, runs: Sequence[Phase], *, batches: bool = True) -> tuple[DelayDrift, ...]:
    """Return the comparison of every quantity that the calibration and all runs have.

    Without ``batches`` those of batches are omitted: another policy runs other variants, whose
    times may depart from their profiles by other factors.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        compared = run if batches else replace(run, stretch={}, charged={})
        for key, factor in _factors(world, compared).items():
            found.setdefault(key, []).append(round(factor, 4))
    return tuple(
        DelayDrift(what=what, of=of, factors=tuple(factors))
        for (what, of), factors in found.items()
        if len(factors) == len(runs)
    )


def beyond_bound(found: Iterable[DelayDrift]) -> tuple[DelayDrift, ...]:
    """Return those that drifted, the largest first."""
    return tuple(sorted((x for x in found if x.drifted), key=lambda x: -abs(log(x.factor))))


def drift_text(found: Sequence[DelayDrift]) -> str:
    """Return what drifted as a sentence; "" if nothing could be compared."""
    if not found:
        return ""
    if drifted := beyond_bound(found):
        clauses = "; ".join(each.sentence for each in drifted)
        return f"drift since the calibration: {clauses}; run `headrace calibrate` again"
    return f"no drift: batches and hops took within {BOUND - 1:.0%} of the calibrated time"


def _factors(world: World, run: Phase) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    phases = [(_timed(phase), phase.charged) for phase in world.phases]
    for what, alike in _timed(run).items():
        for of in (MEDIAN, MEAN):
            ratios = [_ratio(alike, timed[what], of) for timed, _ in phases if what in timed]
            if (factor := _nearest_to_one(ratios)) is not None:
                found[what, of] = factor
    for task, levels in run.charged.items():
        ratios = [_charge_ratio(levels, charged.get(task, {})) for _, charged in phases]
        if (factor := _nearest_to_one(ratios)) is not None:
            found[f"batches of {task}", CHARGE] = factor
    return found


def _timed(phase: Phase) -> Mapping[str, Alike]:
    """Return the timed delays of a phase by what they are.

    A phase with too few lags to tell has them in its hops and ways out, so all phases have them
    there.
    """
    found: dict[str, dict[Hashable, Seen]] = {}

    def add(what: str, levels: Levels, size: int = ANY_SIZE, more_s: float = 0.0) -> None:
        for level, seen in levels.items():
            longer = [(at_s, value + more_s) for at_s, value in seen]
            found.setdefault(what, {})[size, level] = longer

    add("hops", phase.hops, more_s=phase.lag_s)
    add("ways in", phase.ways_in)
    add("ways out", phase.ways_out, more_s=phase.lag_s)
    for task, levels in phase.starts.items():
        add(f"starts of {task}", levels)
    for (task, device, size), levels in phase.stretch.items():
        if size != ANY_SIZE:
            add(f"batches of {task} on {device}", levels, size)
    return found


def _ratio(live: Alike, calibrated: Alike, of: str) -> float | None:
    """Return the live median or mean over the calibrated one, of delays of the same kind, as a mean
    over the live ones; None without a kind in common."""
    logs = [
        (len(live[kind]), _log_ratio(live[kind], calibrated[kind], of))
        for kind in live
        if kind in calibrated
    ]
    if not logs:
        return None
    return exp(fsum(count * each for count, each in logs) / sum(count for count, _ in logs))


def _charge_ratio(live: Mapping[int, float], calibrated: Mapping[int, float]) -> float | None:
    """Return what batches were charged over the calibrated charge, as a mean over the levels that
    both have."""
    logs = [
        log(most / calibrated[level])
        for level, most in live.items()
        if level in calibrated and min(most, calibrated[level]) > 0.0
        and max(most, calibrated[level]) < inf
    ]  # fmt: skip
    return exp(fsum(logs) / len(logs)) if logs else None


def _log_ratio(live: Seen, calibrated: Seen, of: str) -> float:
    average = np.median if of == MEDIAN else np.mean
    one, other = (float(average([value for _, value in seen])) for seen in (live, calibrated))
    if abs(one - other) < FLOOR_S or min(one, other) <= 0.0:
        return 0.0
    return log(one / other)


def _nearest_to_one(ratios: Iterable[float | None]) -> float | None:
    """Return the ratio nearest to 1, and 1 if there are larger and smaller ones; None for none."""
    known = [ratio for ratio in ratios if ratio is not None]
    return common(known) if known else None
