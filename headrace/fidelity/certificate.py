"""Certificate of a simulation: a live run and simulated ones compared metric by metric.

A certificate is valid for one pipeline file, profile, policy and arrivals, by their hashes. The
bounds are Headrace's own: ``must`` is required if the host is not overloaded, ``aim`` is the
tighter goal.

    certificate = certified(conditions, live, simulated)
    print(certificate.verdict)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import fsum
from typing import Any

from headrace.errors import CertificateError
from headrace.results.figures import Figures

FORMAT = 1
FLOOR = 0.01  # of the SLO: a difference of latencies below it changes no outcome that counts
MOST_LOAD = 0.7  # of the whole machine; above it the machine causes the delays

AIM, MUST, MISSED, UNJUDGED = "aim", "must", "missed", ""
RELATIVE, ABSOLUTE = "relative", "absolute"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedMetric:
    """One line of a certificate: ``error`` is simulated - live, or that divided by live.

    ``simulated`` is the mean of the simulations, ``low`` and ``high`` their range.
    ``must`` and ``aim`` bound the error's magnitude; None: no bound. ``floor`` is the absolute
    difference, in the metric's unit, that is within ``must`` whatever the error; None: no floor.
    ``verdict`` is the tighter bound that is met, "missed", or "" without bounds.
    """

    name: str
    unit: str  # ms, fraction, devices, queries
    live: float | None
    simulated: float | None
    error: float | None
    kind: str  # relative, absolute
    must: float | None = None
    aim: float | None = None
    verdict: str = UNJUDGED
    low: float | None = None
    high: float | None = None
    floor: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The conditions of both runs: inputs, versions, machine and its load.

    ``dilate``: the factor by which time ran slower in the live run. ``host_cpu_share``: the busy
    fraction of all cores while queries were sent; ``own_cpu_share``: the run's own part of it.
    ``behind_ms``: the largest delay of a query behind its arrival time, in pipeline time.
    ``hop_ms``: quantiles of a hop between tasks (wall time) in the live run, which the simulation
    replays; empty: it used the built-in ones. ``way_in_ms``, ``way_out_ms``: likewise each of the
    two hops to the first task, and the hop to egress. ``lag_ms``: from the end of a batch until its
    worker knows. Of real devices: ``start_ms``, from the earliest possible start of a batch to its
    start, and ``stretch``, its duration over the profiled median. ``simulations``: their number,
    with seeds from ``seed`` on.
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
    dilate: float
    devices: Mapping[str, int]
    date: str  # ISO 8601, UTC
    machine: str
    versions: Mapping[str, str]
    host_cpu_share: float | None
    behind_ms: float
    own_cpu_share: float | None = None
    hop_ms: Mapping[str, float] = field(default_factory=dict)
    simulations: int = 1
    way_in_ms: Mapping[str, float] = field(default_factory=dict)
    way_out_ms: Mapping[str, float] = field(default_factory=dict)
    lag_ms: Mapping[str, float] = field(default_factory=dict)
    start_ms: Mapping[str, float] = field(default_factory=dict)
    stretch: Mapping[str, float] = field(default_factory=dict)
    slo_ms: float | None = None  # None: a certificate from before floors


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The errors of a simulation against a live run, with verdicts."""

    conditions: Conditions
    metrics: tuple[CertifiedMetric, ...]

    @property
    def verdict(self) -> str:
        """The worst verdict of all metrics: "missed", "must" or "aim"."""
        found = {metric.verdict for metric in self.metrics}
        return next((each for each in (MISSED, MUST) if each in found), AIM)

    @property
    def warning(self) -> str:
        """The reason to doubt the live run itself; "" without one."""
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
        """Return the certificate as stored JSON."""
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            "warning": self.warning,
            "conditions": asdict(self.conditions),
            "metrics": [asdict(metric) for metric in self.metrics],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Certificate":
        """Return the certificate from the JSON of ``as_json``; raises ``CertificateError``."""
        found = value.get("format") if isinstance(value, Mapping) else None
        if found != FORMAT:
            raise CertificateError(
                f"a certificate has format {FORMAT}, and this has {found!r}; run "
                "`headrace fidelity` again"
            )
        try:
            return cls(
                conditions=Conditions(**value["conditions"]),
                metrics=tuple(CertifiedMetric(**metric) for metric in value["metrics"]),
            )
        except (KeyError, TypeError) as error:
            raise CertificateError(
                f"the certificate cannot be read ({error}); run `headrace fidelity` again"
            ) from error


# name, unit, kind, must, aim
_BOUNDS: tuple[tuple[str, str, str, float | None, float | None], ...] = (
    ("p50_ms", "ms", RELATIVE, 0.10, 0.05),
    ("p95_ms", "ms", RELATIVE, 0.10, 0.05),
    ("p99_ms", "ms", RELATIVE, None, 0.05),
    ("branch_violation", "fraction", ABSOLUTE, 0.02, 0.005),
    ("violation", "fraction", ABSOLUTE, 0.02, 0.005),
    ("accuracy", "fraction", ABSOLUTE, 0.005, 0.001),
    ("devices_mean", "devices", RELATIVE, None, None),
    ("queries", "queries", RELATIVE, None, None),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a metric; see ``CertifiedMetric``."""

    must: float | None = None
    aim: float | None = None
    floor: float | None = None


UNBOUNDED = Limits()


def certified(conditions: Conditions, live: Figures, *simulated: Figures) -> Certificate:
    """Return the certificate of a live run and one or more simulations of the same arrivals."""
    return Certificate(conditions=conditions, metrics=tuple(_metrics(conditions, live, simulated)))


def _metrics(
    conditions: Conditions, live: Figures, simulated: Sequence[Figures]
) -> Iterator[CertifiedMetric]:
    floor_ms = None if conditions.slo_ms is None else FLOOR * conditions.slo_ms
    for name, unit, kind, must, aim in _BOUNDS:
        values = [getattr(each, name) for each in simulated]
        bounds = Limits(must, aim, floor_ms if unit == "ms" and must is not None else None)
        yield metric(name, unit, kind, getattr(live, name), values, bounds)
    both = (live, *simulated)
    yield from _parts("drops", "fraction", ABSOLUTE, [each.drops for each in both])
    yield from _parts("step", "ms", RELATIVE, [each.steps_ms for each in both])
    yield from _parts("replicas", "devices", RELATIVE, [each.replicas for each in both])


def _parts(
    name: str, unit: str, kind: str, runs: Sequence[Mapping[str, float]]
) -> Iterator[CertifiedMetric]:
    """Yield a line for each part of a figure; a missing part is 0. ``runs[0]`` is the live run."""
    for part in dict.fromkeys(key for run in runs for key in run):
        live, *simulated = (run.get(part, 0.0) for run in runs)
        yield metric(f"{name}/{part}", unit, kind, live, simulated)


def metric(
    name: str,
    unit: str,
    kind: str,
    live: float | None,
    simulated: Sequence[float | None],
    limits: Limits = UNBOUNDED,
) -> CertifiedMetric:
    """Return a line with its error and verdict; without a simulated value if a simulation has
    none."""
    known = [value for value in simulated if value is not None]
    whole = len(known) == len(simulated) > 0
    mean = fsum(known) / len(known) if whole else None
    error = _error(kind, live, mean)
    same = live is None and mean is None
    apart = None if live is None or mean is None else abs(mean - live)
    return CertifiedMetric(
        name=name, unit=unit, live=live, simulated=mean, error=error, kind=kind,
        must=limits.must, aim=limits.aim, verdict=_verdict(0.0 if same else error, apart, limits),
        low=min(known) if whole else None, high=max(known) if whole else None, floor=limits.floor,
    )  # fmt: skip


def _error(kind: str, live: float | None, simulated: float | None) -> float | None:
    if live is None or simulated is None:
        return None
    difference = simulated - live
    if kind == ABSOLUTE or difference == 0:
        return difference
    return difference / live if live else None


def _verdict(error: float | None, apart: float | None, limits: Limits) -> str:
    must, aim, floor = limits.must, limits.aim, limits.floor
    if must is None and aim is None:
        return UNJUDGED
    if error is not None and aim is not None and abs(error) <= aim:
        return AIM
    # Without a ``must`` bound every value counts as MUST: an aim alone is never missed.
    if must is None or (error is not None and abs(error) <= must):
        return MUST
    if apart is not None and floor is not None and apart <= floor:
        return MUST
    return MISSED
