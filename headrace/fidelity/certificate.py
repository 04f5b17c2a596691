"""How far may a simulation be trusted? A live run and a simulated one, compared metric by metric.

A certificate speaks for one pipeline file, profile, policy and arrivals, by their hashes. The
bounds are those that Headrace sets itself: ``must`` at a host that is not overloaded, ``aim``
beyond it.

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
MOST_LOAD = 0.7  # of the whole machine; above it delays are the machine's, not the pipeline's

AIM, MUST, MISSED, UNJUDGED = "aim", "must", "missed", ""
RELATIVE, ABSOLUTE = "relative", "absolute"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedMetric:
    """One line of a certificate: ``error`` is simulated - live, or that divided by live.

    ``simulated`` is the mean of the simulations, ``low`` and ``high`` their range.
    ``must`` and ``aim`` bound its magnitude; None: no bound. ``verdict`` is the better of the two
    that is met, "missed", or "" where there is no bound.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What was run, on what, and how busy the machine was meanwhile.

    ``dilate``: time ran so many times slower in the live run. ``host_cpu_share`` is the busy part
    of all cores while queries were sent, whoever used them, ``own_cpu_share`` what the run itself
    used. ``behind_ms``: how late a query left at worst, in the time of the pipeline. ``hop_ms`` are
    quantiles of a hop between tasks (wall time) as seen in the live run, with which the
    simulation ran; empty: it ran with the built-in ones. ``way_in_ms``, ``way_out_ms``: likewise
    each of the two hops to the first task, and the one to egress. ``lag_ms``: from the end of a
    batch until its worker knows. Of real devices ``start_ms``, from when a batch could begin until
    it did, and ``stretch``, what it took by its profiled median. ``simulations``: how many ran,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How well a simulation foretold a live run."""

    conditions: Conditions
    metrics: tuple[CertifiedMetric, ...]

    @property
    def verdict(self) -> str:
        """The worst verdict of all metrics: "missed", "must" or "aim"."""
        found = {metric.verdict for metric in self.metrics}
        return next((each for each in (MISSED, MUST) if each in found), AIM)

    @property
    def warning(self) -> str:
        """What speaks against the run itself; "" if nothing."""
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
        """The certificate as it is stored."""
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            "warning": self.warning,
            "conditions": asdict(self.conditions),
            "metrics": [asdict(metric) for metric in self.metrics],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Certificate":
        """The reverse of ``as_json``; raises ``CertificateError``."""
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


def certified(conditions: Conditions, live: Figures, *simulated: Figures) -> Certificate:
    """The certificate of a live run and of simulations of the same arrivals, one at least."""
    return Certificate(conditions=conditions, metrics=tuple(_metrics(live, simulated)))


def _metrics(live: Figures, simulated: Sequence[Figures]) -> Iterator[CertifiedMetric]:
    for name, unit, kind, must, aim in _BOUNDS:
        values = [getattr(each, name) for each in simulated]
        yield metric(name, unit, kind, getattr(live, name), values, must=must, aim=aim)
    both = (live, *simulated)
    yield from _parts("drops", "fraction", ABSOLUTE, [each.drops for each in both])
    yield from _parts("step", "ms", RELATIVE, [each.steps_ms for each in both])
    yield from _parts("replicas", "devices", RELATIVE, [each.replicas for each in both])


def _parts(
    name: str, unit: str, kind: str, runs: Sequence[Mapping[str, float]]
) -> Iterator[CertifiedMetric]:
    """A line for each part of a figure; what a run does not have is 0. The live one is first."""
    for part in dict.fromkeys(key for run in runs for key in run):
        live, *simulated = (run.get(part, 0.0) for run in runs)
        yield metric(f"{name}/{part}", unit, kind, live, simulated)


def metric(
    name: str,
    unit: str,
    kind: str,
    live: float | None,
    simulated: Sequence[float | None],
    *,
    must: float | None = None,
    aim: float | None = None,
) -> CertifiedMetric:
    """A line with its error and verdict; without a value where a simulation has none."""
    known = [value for value in simulated if value is not None]
    whole = len(known) == len(simulated) > 0
    mean = fsum(known) / len(known) if whole else None
    error = _error(kind, live, mean)
    same = live is None and mean is None
    return CertifiedMetric(
        name=name, unit=unit, live=live, simulated=mean, error=error, kind=kind, must=must,
        aim=aim, verdict=_verdict(0.0 if same else error, must, aim),
        low=min(known) if whole else None, high=max(known) if whole else None,
    )  # fmt: skip


def _error(kind: str, live: float | None, simulated: float | None) -> float | None:
    if live is None or simulated is None:
        return None
    difference = simulated - live
    if kind == ABSOLUTE or difference == 0:
        return difference
    return difference / live if live else None


def _verdict(error: float | None, must: float | None, aim: float | None) -> str:
    if must is None and aim is None:
        return UNJUDGED
    if error is not None and aim is not None and abs(error) <= aim:
        return AIM
    # What has an aim only cannot be missed: it falls back to what every run is held to.
    if must is None or (error is not None and abs(error) <= must):
        return MUST
    return MISSED
