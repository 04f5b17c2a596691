"""How many items does one item make? Multiplicative factors, from workers' reports.

Workers count, per variant, the items they finished and the children these made for each child
task (Loki, section 4.2). For every (variant v, child c) two sums over the recent past,

    n  <-  n d + finished            s  <-  s d + children            factor(v, c) = s / n

where a report that comes dt seconds after the last one forgets by d = exp(-dt / TAU_S), but never
so much that fewer than ``FEWEST`` items are left: a variant that rests keeps what it was seen to
do. Until ``FEWEST`` items were seen the profile stands. The sums ride in every plan, so that the
next control app goes on with them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, sqrt

from control.estimation.report_deltas import News
from schemas.records import Factor

TAU_S = 10.0
FEWEST = 100.0  # items; with Poisson fan-out a mean of 5 is known to 4.5 %
DRIFT = 0.1  # a factor has drifted when it differs by more than this part
DRIFT_SIGMAS = 4.0  # and by more than so many standard errors of what was seen

Edge = tuple[str, str]  # ("task/variant", child task)
Multiplicity = Mapping[Edge, float]


@dataclass(frozen=True, slots=True)
class _Seen:
    items: float
    children: float


@dataclass(frozen=True, slots=True)
class Factors:
    """What was observed; ``observe`` gives the next state. ``edges`` are the pipeline's."""

    edges: tuple[Edge, ...]
    _seen: Mapping[Edge, _Seen] = field(default_factory=dict)

    def recall(self, known: Iterable[Factor]) -> "Factors":
        """With what a plan remembers of edges of which nothing was observed yet."""
        told = {(f.variant, f.child): _Seen(f.items, f.items * f.mean) for f in known}
        kept = {edge: seen for edge, seen in told.items() if edge in self.edges}
        return Factors(self.edges, {**kept, **self._seen})

    def observe(self, news: News) -> "Factors":
        """After what a worker reported."""
        if news.report.counts == news.before:
            return self
        seen = dict(self._seen)
        for edge in self.edges:
            now = self._after(edge, news)
            if now is not None:
                seen[edge] = now
        return Factors(self.edges, seen)

    def _after(self, edge: Edge, news: News) -> _Seen | None:
        variant, child = edge
        known = self._seen.get(edge)
        if news.before is None and known is not None:
            return None  # it may have counted them for somebody who told us
        items = news.since(f"finished/{variant}")
        children = news.since(f"children/{variant}/{child}")
        if items <= 0:
            return None
        known = known or _Seen(0.0, 0.0)
        kept = exp(-(TAU_S if news.seconds is None else news.seconds) / TAU_S)
        if known.items > 0:
            kept = max(kept, min(1.0, FEWEST / known.items))
        return _Seen(known.items * kept + items, known.children * kept + children)

    def told(self) -> tuple[Factor, ...]:
        """All that was observed, for a plan."""
        return tuple(
            Factor(variant, child, seen.children / seen.items, seen.items)
            for (variant, child), seen in sorted(self._seen.items())
            if seen.items > 0
        )

    def multiplicity(self) -> dict[Edge, float]:
        """The factors of which enough was seen."""
        return {(f.variant, f.child): f.mean for f in self.told() if f.items >= FEWEST}

    def drifted(self, planned: Multiplicity) -> tuple[Edge, ...]:
        """The edges whose factor is another one than a plan was made for, beyond chance.

        A factor that the plan did not know, because the profile stood, is ``planned`` too.
        """
        found = []
        for factor in self.told():
            edge = (factor.variant, factor.child)
            if factor.items < FEWEST or edge not in planned:
                continue
            apart = abs(factor.mean - planned[edge])
            error = sqrt(max(factor.mean, planned[edge]) / factor.items)
            if apart > DRIFT * planned[edge] and apart > DRIFT_SIGMAS * error:
                found.append(edge)
        return tuple(found)
