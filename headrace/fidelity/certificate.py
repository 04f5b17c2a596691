"""Certificate of a simulation: a prediction judged by live repeats, metric by metric.

The prediction was made with a calibration from another run, or with built-in figures, and hashed
before the live runs. It is a miss if the error is above the largest of three: the bound, the
absolute floor, and the standard deviation of the live repeats. Skill compares the error with that
of null models, which need no simulator.

    certificate = certified(conditions, predicted, live, nulls=nulls, conditional=conditional)
    print(certificate.met)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import fsum, sqrt
from statistics import stdev
from typing import Any

from scipy.special import stdtrit

from headrace.errors import CertificateError
from headrace.fidelity.drift import DelayDrift
from headrace.results.figures import Figures

FORMAT = 2
MOST_LOAD = 0.7  # of the whole machine; above it the machine causes the delays
CERTAINTY = 0.95  # of the prediction's interval

AIM, MUST, FLOOR, MISSED, UNJUDGED = "aim", "must", "within floor", "missed", ""
Values = Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The bounds of a metric's error; of the live value if ``relative``, else in its own unit.

    Errors up to ``floor``, in the metric's unit, are no misses.
    """

    must: float
    aim: float
    floor: float
    relative: bool


BOUNDS: Mapping[str, Bound] = {
    "p50_ms": Bound(must=0.10, aim=0.05, floor=2.0, relative=True),
    "p95_ms": Bound(must=0.10, aim=0.05, floor=2.0, relative=True),
    "p99_ms": Bound(must=0.20, aim=0.10, floor=2.0, relative=True),
    "branch_violation": Bound(must=0.02, aim=0.005, floor=0.001, relative=False),
    "violation": Bound(must=0.02, aim=0.005, floor=0.001, relative=False),
    "accuracy": Bound(must=0.005, aim=0.001, floor=0.001, relative=False),
}
METRICS = (*BOUNDS, "devices_mean")  # the last one is not judged


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedMetric:
    """One line of a certificate; ``_ms`` in its name: milliseconds, else a fraction or a count.

    ``low`` and ``high`` bound a single new run with 95 % probability, as the simulations vary.
    ``live`` is the mean of the live repeats and ``spread`` their standard deviation. ``error`` is
    predicted - live, divided by live for a latency. ``skill`` is 1 - |error| / |error of the best
    null model|; None if neither exceeds the floor or no null model has a value. ``verdict``: the
    tighter bound that is met, "within floor" where none is, "missed", or "" for a metric without
    bounds.
    """

    name: str
    predicted: float | None
    low: float | None
    high: float | None
    live: float | None
    spread: float | None
    error: float | None
    skill: float | None
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The conditions of prediction and live runs: inputs, versions, machine and its load.

    ``dilate``: the factor by which time ran slower live. ``notes``: what to know about the
    prediction, such as a load that was not calibrated. ``host_cpu_share``: the busy fraction of
    all cores in the busiest live run; ``behind_ms``: the largest delay of a query behind its
    arrival time, in pipeline time. ``warm_up_s`` of the arrivals are not counted. ``look``: at the
    machine before the prediction, as ``MachineLook`` has it.
    """

    pipeline: str
    file: str
    file_sha256: str
    profiles_sha256: Mapping[str, str]
    arrivals: str
    arrivals_sha256: str
    queries: int
    seconds: float
    warm_up_s: float
    policy: str
    seed: int
    simulations: int
    dilate: float
    devices: Mapping[str, int]
    machine: str
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    host_cpu_share: float | None = None
    behind_ms: float = 0.0
    look: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A judged prediction.

    ``sha256`` is that of the prediction's file, written at ``predicted_at``; the first live run
    started at ``live_started_at`` (ISO 8601, UTC). ``world``: the calibration (path, hash, date),
    None for built-in figures. ``live_runs``: the figures of each repeat. ``conditional``: the mean
    of simulations that replay the delays and the plan of the live runs themselves, which tests
    queueing and control logic and predicts nothing. ``nulls``: predictions of the null models.
    ``drift``: the delays of the live runs over those of the calibration; it affects no verdict.
    ``slowest``: the slowest queries of each live run, as ``slow_queries`` has them.
    """

    predicted_at: str
    sha256: str
    live_started_at: str
    world: Mapping[str, Any] | None
    metrics: tuple[CertifiedMetric, ...]
    conditions: Conditions
    live_runs: tuple[Mapping[str, float | None], ...]
    conditional: Mapping[str, float | None]
    nulls: Mapping[str, Mapping[str, float | None]]
    drift: tuple[DelayDrift, ...] = ()
    slowest: tuple[Sequence[Mapping[str, Any]], ...] = ()

    @property
    def repeats(self) -> int:
        """The number of live runs."""
        return len(self.live_runs)

    @property
    def met(self) -> bool:
        """Whether no metric is missed."""
        return all(metric.verdict != MISSED for metric in self.metrics)

    @property
    def verdict(self) -> str:
        """The worst verdict of all metrics: "missed", "within floor", "must" or "aim"."""
        found = {metric.verdict for metric in self.metrics}
        return next((each for each in (MISSED, FLOOR, MUST) if each in found), AIM)

    @property
    def warning(self) -> str:
        """The reason to doubt the live runs themselves; "" without one."""
        share = self.conditions.host_cpu_share
        if share is None:
            return "the load of the host could not be read; the bounds hold below 70 % only"
        if share <= MOST_LOAD:
            return ""
        return (
            f"the host's cores were {share:.0%} busy while it ran, and the bounds hold below "
            f"{MOST_LOAD:.0%}; stop other work or raise --dilate, and run it again"
        )

    def as_json(self) -> dict[str, Any]:
        """Return what ``headrace fidelity --json`` prints."""
        return {
            "predicted_at": self.predicted_at,
            "sha256": self.sha256,
            "live_started_at": self.live_started_at,
            "repeats": self.repeats,
            "world": None if self.world is None else dict(self.world),
            "met": self.met,
            "metrics": [asdict(metric) for metric in self.metrics],
            "drift": [each.as_json() for each in self.drift],
        }

    def as_stored(self) -> dict[str, Any]:
        """Return the certificate as it is kept: the printed keys, and what they rest on."""
        return {
            "format": FORMAT,
            **self.as_json(),
            "warning": self.warning,
            "conditions": asdict(self.conditions),
            "live_runs": [dict(run) for run in self.live_runs],
            "slowest": [list(run) for run in self.slowest],
            "conditional": dict(self.conditional),
            "nulls": {name: dict(values) for name, values in self.nulls.items()},
        }

    @classmethod
    def from_stored(cls, value: Mapping[str, Any]) -> "Certificate":
        """Return the certificate of ``as_stored``; raises ``CertificateError``."""
        found = value.get("format") if isinstance(value, Mapping) else None
        if found != FORMAT:
            raise CertificateError(
                f"a certificate has format {FORMAT}, and this has {found!r}; run "
                "`headrace fidelity` again"
            )
        try:
            conditions = {**value["conditions"], "notes": tuple(value["conditions"]["notes"])}
            return cls(
                conditions=Conditions(**conditions),
                metrics=tuple(CertifiedMetric(**metric) for metric in value["metrics"]),
                live_runs=tuple(value["live_runs"]),
                slowest=tuple(value.get("slowest", ())),
                drift=tuple(DelayDrift.from_json(each) for each in value.get("drift", ())),
                **{name: value[name] for name in (
                    "predicted_at", "sha256", "live_started_at", "world", "conditional", "nulls",
                )},
            )  # fmt: skip
        except (KeyError, TypeError) as error:
            raise CertificateError(
                f"the certificate cannot be read ({error}); run `headrace fidelity` again"
            ) from error


# ---------------------------------------------------------------------- the prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The predicted value of a metric with its interval; None if a simulation has no value."""

    name: str
    predicted: float | None
    low: float | None
    high: float | None
    simulated: tuple[float | None, ...]  # by seed


def predicted(simulated: Sequence[Figures]) -> tuple[Predicted, ...]:
    """Return the prediction of every metric from simulations with different seeds."""
    return tuple(_predicted(name, [values_of(each)[name] for each in simulated])
                 for name in METRICS)  # fmt: skip


def _predicted(name: str, simulated: Sequence[float | None]) -> Predicted:
    known = [value for value in simulated if value is not None]
    if not known or len(known) < len(simulated):
        return Predicted(name=name, predicted=None, low=None, high=None, simulated=tuple(simulated))
    mean, count = fsum(known) / len(known), len(known)
    half = 0.0
    if count > 1:
        students = float(stdtrit(count - 1, (1 + CERTAINTY) / 2))
        half = students * stdev(known) * sqrt(1 + 1 / count)
    low, high = max(mean - half, 0.0), mean + half
    share = name in BOUNDS and not BOUNDS[name].relative
    return Predicted(
        name=name, predicted=mean, low=low, high=min(high, 1.0) if share else high,
        simulated=tuple(simulated),
    )  # fmt: skip


def values_of(figures: Figures) -> dict[str, float | None]:
    """Return the metrics of a run by name."""
    return {name: getattr(figures, name) for name in METRICS}


# ---------------------------------------------------------------------- the verdict


def judged(
    prediction: Sequence[Predicted],
    live: Sequence[Values],
    nulls: Mapping[str, Values],
) -> Iterator[CertifiedMetric]:
    """Yield every metric of a prediction with its error, skill and verdict."""
    for each in prediction:
        found = [run.get(each.name) for run in live]
        known = [value for value in found if value is not None]
        whole = len(known) == len(found) > 0
        mean = fsum(known) / len(known) if whole else None
        spread = (stdev(known) if len(known) > 1 else 0.0) if whole else None
        bases = [values.get(each.name) for values in nulls.values()]
        yield CertifiedMetric(
            name=each.name, predicted=each.predicted, low=each.low, high=each.high, live=mean,
            spread=spread, error=_error(each.name, each.predicted, mean),
            skill=_skill(each.name, each.predicted, mean, bases),
            verdict=_verdict(each.name, each.predicted, mean, spread or 0.0),
        )  # fmt: skip


def _error(name: str, value: float | None, live: float | None) -> float | None:
    if value is None or live is None:
        return None
    bound = BOUNDS.get(name)
    if value == live or bound is None or not bound.relative:
        return value - live
    return (value - live) / live if live else None


def _skill(
    name: str, value: float | None, live: float | None, bases: Sequence[float | None]
) -> float | None:
    bound, known = BOUNDS.get(name), [base for base in bases if base is not None]
    if bound is None or value is None or live is None or not known:
        return None
    own, best = abs(value - live), min(abs(base - live) for base in known)
    if max(own, best) <= bound.floor:
        return None
    return 1.0 - own / max(best, bound.floor)


def _verdict(name: str, value: float | None, live: float | None, spread: float) -> str:
    bound = BOUNDS.get(name)
    if bound is None or (value is None and live is None):
        return UNJUDGED
    if value is None or live is None:
        return MISSED
    error, unit = abs(value - live), abs(live) if bound.relative else 1.0
    if error <= bound.aim * unit:
        return AIM
    if error <= max(bound.must * unit, spread):
        return MUST
    return FLOOR if error <= bound.floor else MISSED
