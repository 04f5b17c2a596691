"""Multiplicative factors, the mean fan-out of each variant, from workers' reports.

Workers count, per variant, the finished items and their children for each child task (Loki, section
4.2). For every (variant v, child c) there are two decaying sums,

    n  <-  n d + finished            s  <-  s d + children            factor(v, c) = s / n

where a report dt seconds after the last one decays them by d = exp(-dt / TAU_S), but never below
``FEWEST`` items, so that an idle variant keeps its last factor. Until ``FEWEST`` items have been
observed, the profile's factor applies. Every plan carries the sums, so that a restarted control app
resumes from them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import exp, sqrt

from control.estimation.report_deltas import News
from schemas.records import Factor

TAU_S = 10.0
FEWEST = 100.0  # items; with Poisson fan-out a mean of 5 is known to 4.5 %
DRIFT = 0.1  # a factor has drifted when it differs by more than this fraction
DRIFT_SIGMAS = 4.0  # and by more than this number of standard errors

Edge = tuple[str, str]  # ("task/variant", child task)
Multiplicity = Mapping[Edge, float]


@dataclass(frozen=True, slots=True)
class _FanoutSums:
    items: float
    children: float


@dataclass(frozen=True, slots=True)
class Factors:
    """The observations so far; ``observe`` returns the next state. ``edges`` are the pipeline's."""

    edges: tuple[Edge, ...]
    _seen: Mapping[Edge, _FanoutSums] = field(default_factory=dict)

    def recall(self, known: Iterable[Factor]) -> "Factors":
        """Return the state with a plan's factors for edges that have no observation yet."""
        before = {(f.variant, f.child): _FanoutSums(f.items, f.items * f.mean) for f in known}
        kept = {edge: seen for edge, seen in before.items() if edge in self.edges}
        return Factors(self.edges, {**kept, **self._seen})

    def observe(self, news: News) -> "Factors":
        """Return the state after a worker's report."""
        if news.report.counts == news.before:
            return self
        seen = dict(self._seen)
        counts = news.report.counts
        for edge in self.edges:
            # Skip variants that this worker has never run: most edges.
            now = self._after(edge, news) if _names(edge)[0] in counts else None
            if now is not None:
                seen[edge] = now
        return Factors(self.edges, seen)

    def _after(self, edge: Edge, news: News) -> _FanoutSums | None:
        finished, made = _names(edge)
        known = self._seen.get(edge)
        if news.before is None and known is not None:
            return None  # an earlier controller may have counted these items
        items, children = news.since(finished), news.since(made)
        if items <= 0:
            return None
        known = known or _FanoutSums(0.0, 0.0)
        kept = exp(-(TAU_S if news.seconds is None else news.seconds) / TAU_S)
        if known.items > 0:
            kept = max(kept, min(1.0, FEWEST / known.items))
        return _FanoutSums(known.items * kept + items, known.children * kept + children)

    def factors(self) -> tuple[Factor, ...]:
        """Return all observed factors, for a plan to carry."""
        return tuple(
            Factor(variant, child, seen.children / seen.items, seen.items)
            for (variant, child), seen in sorted(self._seen.items())
            if seen.items > 0
        )

    def multiplicity(self) -> dict[Edge, float]:
        """Return the factors with enough observations."""
        return {(f.variant, f.child): f.mean for f in self.factors() if f.items >= FEWEST}

    def drifted(self, planned: Multiplicity) -> tuple[Edge, ...]:
        """Return the edges whose factor differs significantly from the planned one.

        ``planned`` includes the profile's factor for an edge without observations.
        """
        found = []
        for factor in self.factors():
            edge = (factor.variant, factor.child)
            if factor.items < FEWEST or edge not in planned:
                continue
            apart = abs(factor.mean - planned[edge])
            error = sqrt(max(factor.mean, planned[edge]) / factor.items)
            if apart > DRIFT * planned[edge] and apart > DRIFT_SIGMAS * error:
                found.append(edge)
        return tuple(found)


@cache
def _names(edge: Edge) -> tuple[str, str]:
    """Return the names under which workers count an edge's items and children."""
    variant, child = edge
    return f"finished/{variant}", f"children/{variant}/{child}"
