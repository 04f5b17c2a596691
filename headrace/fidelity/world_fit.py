"""Fit a phase of a calibration to the answers of a live run.

Every delay is kept with the number of the machine's devices that ran a batch at that moment: on a
machine whose devices share its cores, contention is the largest effect on a batch's duration.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from headrace.fidelity.delay_trace import (
    FREE,
    RecordedBatch,
    SizeOf,
    batches,
    by_kind,
    by_task,
    hops_s,
    lags_s,
    occupancy,
    of_one,
    paying,
    read_at_once,
    starts_s,
    stretches,
    ways_in_s,
    ways_out_s,
)
from profiles.profile_table import ProfileTable
from schemas.records import Answer, Report
from streams.simulated.delays import STAMP_S, Seen, mean
from streams.simulated.world import Levels, Phase

FEWEST = 30  # the fewest samples of a usable distribution
MOST = 2000  # samples kept of one level; more are thinned evenly in time
BROKER = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)  # probabilities of the broker's quantiles

Pairs = Iterable[tuple[float, float]]


def fitted(
    answers: Iterable[Answer],
    profile: ProfileTable,
    devices: Mapping[str, str],
    *,
    dilate: float,
    from_s: float,
    until_s: float,
    rate_qps: float,
    size_of: SizeOf = of_one,
    rates: Mapping[str, float] = FREE,
    reports: Iterable[Report] = (),
) -> Phase:
    """Return the phase that these answers show.

    ``devices`` maps workers that run models to devices, ``size_of`` answers to the sizes of their
    queries, ``rates`` are those of ``paid_batches.own_rates`` and ``reports`` those of the workers
    in them; ``from_s`` and ``until_s`` bound the phase and ``rate_qps`` is its load, all in the
    pipeline's time, in which ``dilate`` wall seconds pass in one second.
    """
    known = list(answers)
    ran = batches(known, size_of)
    busy = occupancy([each for each in ran if each.worker in devices])
    ran, charged = paying(ran, profile, devices, rates, reports, busy)
    at_once, real = read_at_once(ran), [each for each in ran if each.worker in devices]
    levels = by_occupancy(busy, from_s, dilate)
    waiting = {task: list(starts_s(of)) for task, of in by_task(real).items()}
    lag_s = _lag_s(ran, mean(chain.from_iterable(waiting.values())) * dilate, dilate)
    # Time stamps are half a ms early on average, which the simulation models separately.
    early_s = STAMP_S / 4  # of each of two hops
    stretch = {
        kind: levels(stretches(of, profile, devices), factor=1.0)
        for kind, of in by_kind(real, devices).items()
    }
    starts = {task: levels(of) for task, of in waiting.items()}
    return Phase(
        rate_qps=round(rate_qps / dilate, 6),
        seconds=(until_s - from_s) * dilate,
        hops=levels((each for answer in known for each in hops_s(answer, at_once)), less_s=lag_s),
        ways_in=levels(
            (each for answer in known for each in ways_in_s(answer, at_once)), less_s=early_s
        ),
        ways_out=levels((each for answer in known for each in ways_out_s(answer)), less_s=lag_s),
        lag_s=lag_s,
        starts={task: found for task, found in starts.items() if found},
        stretch={kind: found for kind, found in stretch.items() if found},
        charged=charged,
    )


def _lag_s(ran: Sequence[RecordedBatch], start_s: float, dilate: float) -> float:
    """Return the mean lag after a batch; ``start_s`` is the mean delay of the next one's start.

    After the end of a batch only the sum of the lag and the next delay (a way or a start) is
    visible. The mean of the other is subtracted from each, so that the mean of the sum is right.
    """
    lags = [max(0.0, s * dilate - start_s) for _, s in lags_s(ran)]
    return float(np.mean(lags)) if len(lags) >= FEWEST else 0.0


def by_occupancy(
    busy: Callable[[float], int], from_s: float, dilate: float
) -> Callable[..., Levels]:
    """Return a function that sorts delays into levels: how many devices were busy just then.

    A delay of ``s`` wall seconds counts as ``factor * s - less_s``, at least 0.
    """

    def levels(found: Pairs, factor: float = dilate, less_s: float = 0.0) -> Levels:
        by_level: dict[int, list[tuple[float, float]]] = {}
        for at_s, s in sorted((at_s, max(0.0, factor * s - less_s)) for at_s, s in found):
            by_level.setdefault(busy(at_s), []).append(((at_s - from_s) * dilate, s))
        return usable_levels(by_level)

    return levels


def usable_levels(by_level: Mapping[int, Sequence[tuple[float, float]]]) -> Levels:
    """Return the levels with ``FEWEST`` samples or more, thinned to ``MOST``.

    If there is none, but enough samples in all, they form one level together.
    """
    found = {level: _thinned(s) for level, s in sorted(by_level.items()) if len(s) >= FEWEST}
    every = sorted(chain.from_iterable(by_level.values()))
    if found or len(every) < FEWEST:
        return found
    return {min(by_level): _thinned(every)}


def _thinned(samples: Sequence[tuple[float, float]]) -> Seen:
    if len(samples) <= MOST:
        return tuple(samples)
    return tuple(samples[at] for at in np.linspace(0, len(samples) - 1, MOST).astype(int).tolist())


def broker_quantiles(round_trips_s: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Return the quantiles of a hop, from the seconds of single records through the broker."""
    values = np.quantile(np.asarray(round_trips_s, dtype=np.float64), BROKER)
    return tuple(zip(BROKER, (round(float(each), 6) for each in values), strict=True))
