"""Estimators of the demand to plan for, by name, from queries per second.

``recent`` is the current rate. ``ewma`` is the paper's, with the weights of its authors' code:

    sum of (1 - a)^k x(k) / sum of (1 - a)^k       k seconds back, a = 1 / 2.6, 20 seconds

``trend`` extrapolates in three steps, because a plan stays in force for seconds:

    level      the end of a least-squares line through the last ``FITTED`` seconds, without those
               before the first query. If the newest seconds lie significantly above the line
               through the earlier ones, load has jumped and the newest seconds alone count; in the
               first second of a jump, the rate since its likeliest start (``surge``), once a second
               count shows it
    ahead      + slope x h if the slope is significant. The horizon h is how long an undersized
               plan stays in force: ``REACT_S``, or ``NOTICE_S`` plus the time to load a variant if
               that is longer, at most ``MOST_AHEAD_S``. A falling slope is not extrapolated: a plan
               for too little demand loses answers, one for too much loses a little accuracy
    headroom   + ln(1 / ``OVERFLOW``) / (2 t), t = (1 - compute share) x SLO, the time for queues

The headroom is the Poisson quantile over all windows at once: with capacity C and Poisson arrivals
at rate r the queued work exceeds C t with probability exp(-2 t (C - r)) as C nears r (Kingman's
bound). It is an absolute rate, not a fraction, because large streams are relatively smoother.

A backlog adds the rate that clears it within an interval. At most r x SLO queries of the backlog
count, those that can still be answered in time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt

from control.estimation.demand import Demand

COM = 1.6  # pandas' center of mass: a = 1 / (1 + com)
SAMPLES = 20
FITTED = 10
LEAST_FITTED = 5
REACT_S = 3.0  # from a jump of demand until workers have loaded the next plan's variants
NOTICE_S = 2.0  # part of ``REACT_S`` until workers begin to load
MOST_AHEAD_S = 2.0 * FITTED  # a line is not extrapolated further
SHORT_S = 0.05  # a shorter window is not significant
ROUNDING = 1e-6  # of a second
FEWEST = 8  # queries in a window that can show a jump: fewer are too far from normal
FALLEN = 0.7  # a plan for more than 1 / FALLEN of the expected demand is too large to keep
OVERFLOW = 0.05
SIGMAS = 4.0  # standard errors that count as significant
WINDOWS_SIGMAS = 4.5  # the same for the most significant of many windows
OUTGROWN = 1.05  # a rise that counts if it exceeds the plan's capacity
RISEN = 1.15  # a plan for less than 1 / RISEN of the expected demand is too small to keep
# A smaller change is chance: three standard errors of ``ewma`` at one query per second. A single
# query raises it by 0.4.
LEAST_CHANGE_QPS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The plan to estimate for: in force for ``interval_s`` under the SLO ``slo_s`` (seconds), of
    which ``queue_share`` is the fraction for queues. A worker loads a variant in ``load_s``."""

    interval_s: float
    slo_s: float
    queue_share: float
    load_s: float = 0.0

    @property
    def react_s(self) -> float:
        """The seconds from a change of demand until workers have loaded a plan for it."""
        return min(max(REACT_S, NOTICE_S + self.load_s), MOST_AHEAD_S)


def recent(demand: Demand, now: float, horizon: Horizon) -> float:
    """Return the current arrival rate in queries per second."""
    return demand.rate_qps(now)


def ewma(demand: Demand, now: float, horizon: Horizon) -> float:
    """Return the exponentially weighted mean of Loki (section 4.2), plus the backlog's rate."""
    seen = demand.by_second(now)
    if not seen:
        return demand.rate_qps(now)
    return _weighted(seen) + _backlog(demand, now, horizon)


def trend(demand: Demand, now: float, horizon: Horizon) -> float:
    """Return the expected demand when the next plan takes effect, with Poisson headroom."""
    seen = _since_the_first(demand.by_second(now))[-FITTED:]
    level = _ahead(seen, horizon.react_s) if seen else _first_rate(demand, now)
    level = max(level, surge(demand, now, level))
    if level <= 0:
        return 0.0
    room_s = 2 * horizon.queue_share * horizon.slo_s
    headroom = log(1 / OVERFLOW) / room_s if room_s > 0 else 0.0
    # Headroom at most doubles the demand of a thin stream.
    return level + min(headroom, level) + _backlog(demand, now, horizon)


Estimator = Callable[[Demand, float, Horizon], float]
ESTIMATORS: Mapping[str, Estimator] = {"recent": recent, "ewma": ewma, "trend": trend}


def jumped(demand: Demand, now: float, planned_qps: float) -> bool:
    """Return whether arrivals significantly exceed the planned demand, so that a plan is due.

    True if a window within the last ``LINE_S`` (``surge``), the last second, or the mean of the
    last three seconds exceeds the planned demand by a tenth of it and by four standard errors.
    """
    seen = demand.by_second(now)
    return surge(demand, now, planned_qps) > 0 or any(
        _above(sum(seen[-wide:]) / wide, wide, planned_qps) for wide in (1, 3) if len(seen) >= wide
    )


def surge(demand: Demand, now: float, level_qps: float) -> float:
    """Return the arrival rate since a jump above ``level_qps``; 0 without a jump.

    Of the windows that end now and exceed the level significantly, the one with the most standard
    errors starts at the likeliest interval between two counts. The jump began somewhere in it. If
    it is the newest, the rate is not known yet: a plan for too little would delay the right one.
    """
    windows = _windows(demand, now)
    most, start = 0.0, 0
    for at, (seconds, count) in enumerate(windows):
        mean = count / seconds
        if count < FEWEST or not _above(mean, seconds, level_qps, WINDOWS_SIGMAS):
            continue
        errors = (mean - level_qps) * sqrt(seconds / max(level_qps, 1.0))
        if errors > most:
            most, start = errors, at
    if most == 0.0 or (start == 0 and _just_begun(windows, level_qps)):
        return 0.0
    return _rate_since(windows, start)


def _windows(demand: Demand, now: float) -> list[tuple[float, float]]:
    return [each for each in demand.lately(now) if each[0] >= SHORT_S - ROUNDING]


def _just_begun(windows: Sequence[tuple[float, float]], level_qps: float) -> bool:
    """Return whether a jump that shows in the newest interval does not in the one before, which has
    no more queries than the level or the intervals before it show."""
    if len(windows) < 2:
        return False
    (newest_s, newest), (both_s, both) = windows[:2]
    all_s, every = windows[-1]
    earlier_qps = (every - both) / (all_s - both_s) if len(windows) > 2 else level_qps
    return both - newest <= min(level_qps, earlier_qps) * (both_s - newest_s)


def _first_rate(demand: Demand, now: float) -> float:
    """Return the arrival rate before a whole second has been seen, 0 if arrivals have just begun:
    they then are fewer than a rate shows."""
    return 0.0 if _just_begun(_windows(demand, now), 0.0) else demand.rate_qps(now)


def _rate_since(windows: Sequence[tuple[float, float]], start: int) -> float:
    """Return the rate of a window, without its first interval if that has fewer queries than the
    others show and chance explains."""
    seconds, count = windows[start]
    after_s, after = windows[max(start - 1, 0)]
    if start > 0 and after >= FEWEST:
        expected = after / after_s * (seconds - after_s)
        if count - after < expected - sqrt(expected):
            return after / after_s
    return count / seconds


def rose(expected_qps: float, planned_qps: float) -> bool:
    """Return whether expected demand exceeds planned so far that the plan loses answers."""
    return expected_qps > max(RISEN * planned_qps, planned_qps + LEAST_CHANGE_QPS)


def outgrew(expected_qps: float, planned_qps: float, capacity_qps: float) -> bool:
    """Return whether expected demand has risen above the capacity of the plan in force."""
    return expected_qps > max(OUTGROWN * planned_qps, capacity_qps)


def fell(expected_qps: float, planned_qps: float) -> bool:
    """Return whether expected demand is so far below planned that the plan loses accuracy."""
    return expected_qps < min(FALLEN * planned_qps, planned_qps - LEAST_CHANGE_QPS)


def _above(mean_qps: float, seconds: float, planned_qps: float, sigmas: float = SIGMAS) -> bool:
    """Return whether a mean over ``seconds`` significantly exceeds the planned demand."""
    chance = sigmas * sqrt(max(planned_qps, 1.0) / seconds)
    return mean_qps > planned_qps + max(chance, 0.1 * planned_qps)


def _weighted(seen: Sequence[float]) -> float:
    kept = 1 - 1 / (1 + COM)
    weights = [kept**back for back in range(min(len(seen), SAMPLES))]
    newest_first = reversed(seen[-SAMPLES:])
    return sum(w * x for w, x in zip(weights, newest_first, strict=True)) / sum(weights)


def _ahead(seen: Sequence[float], react_s: float) -> float:
    if len(seen) < LEAST_FITTED:
        # Too short for a line.
        mean = sum(seen) / len(seen)
        return seen[-1] if _above(seen[-1], 1, mean) else mean
    newest = sum(seen[-2:]) / 2
    mean, slope, _ = _line(seen[:-2])
    expected = mean + max(0.0, slope) * len(seen) / 2  # at the middle of the two newest seconds
    if _above(newest, 2, expected):
        return newest
    mean, slope, error = _line(seen)
    sure = abs(slope) - error
    if sure <= 0:
        return mean
    end = mean + slope * (len(seen) - 1) / 2
    if slope < 0:
        return max(end, newest)
    if end - newest > SIGMAS * sqrt(end / 2):
        return newest  # the rise has ended
    return end + sure * react_s


def _since_the_first(seen: Sequence[float]) -> Sequence[float]:
    """Return the last seconds after the one with the first query, if that is known: the start of
    clients is not a slope of their demand."""
    lately = seen[-FITTED - 1 :]
    first = next((at for at, x in enumerate(lately) if x > 0), 0)
    known = first == 0 and len(lately) > FITTED
    return lately if known else lately[first + 1 :]


def _line(seen: Sequence[float]) -> tuple[float, float, float]:
    """Return the least-squares mean, slope per second, and the slope's standard error (Poisson)."""
    mean, middle = sum(seen) / len(seen), (len(seen) - 1) / 2
    squares = sum((at - middle) ** 2 for at in range(len(seen)))
    if squares == 0:
        return mean, 0.0, 0.0
    slope = sum((at - middle) * x for at, x in enumerate(seen)) / squares
    return mean, slope, sqrt(max(mean, 1.0) / squares)


def _backlog(demand: Demand, now: float, horizon: Horizon) -> float:
    in_time = demand.rate_qps(now) * horizon.slo_s
    return min(demand.waiting(now), in_time) / horizon.interval_s
