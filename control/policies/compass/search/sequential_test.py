"""Adaptive profiling: stop sampling a configuration once its verdict is confident.

After ``least`` samples and then every ``look`` samples, Student's t gives the confidence that the
true mean is on the same side of the floor as the sample mean (Compass, Section 4.2); the test stops
at ``confidence``. At ``most`` samples it accepts only with the confidence ``cap``. Rules by name:
``one-sided`` (default), ``two-sided`` (Circinus v1), ``stratified`` (variance within strata).

Repeated looks, and a search that serves by the cheapest of many configurations, favour lucky
samples (the winner's curse). So a test may have a ``prior``, the accuracy that a search predicts
from its other profiles. Then it accepts only if the mean is also confident by the samples and the
prior together, weighted by their precision: an improbable configuration needs more samples. The
prior makes no test reject before ``most``; there the confidence must be ``CONFIRMED``.

Before ``least`` samples Student's t cannot be trusted, but Chernoff's bound can: if the true mean
reaches the floor, n scores from 0 to 1 have a mean of at most m < floor with a probability of at
most

    exp(-n (m ln(m / floor) + (1 - m) ln((1 - m) / (1 - floor))))

whatever their distribution (Hoeffding 1963, Theorem 1; it also holds for a finite set of samples).
Configurations far below the floor are rejected by it every ``look`` samples; all these looks
together reject a good one with a probability of ``1 - confidence`` at most.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr, stdtr

from control.problem.problem import PlanError

Floats = NDArray[np.float64]

CONFIRMED = 0.93  # least confidence at the last sample, with a prior


class Verdict(StrEnum):
    """State of a test of a mean against its floor."""

    OPEN = "open"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNFIT = "unfit"  # too slow or too expensive, whatever its mean


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """The stopping rule; see the module docstring.

    ``population`` is the size of a finite set of samples (a recording), or None. It scales the
    variance of a mean of n samples by (1 - n / population); after all samples the mean decides.
    """

    least: int = 50
    most: int = 350
    look: int = 10
    confidence: float = 0.99
    cap: float = 0.9
    test: str = "one-sided"
    population: int | None = None

    def __post_init__(self) -> None:
        """Raise ``PlanError`` for an invalid rule."""
        if not 2 <= self.least <= self.most or self.look < 1:
            raise PlanError(
                f"samples: least {self.least} and most {self.most}; give 2 <= least <= most"
            )
        if not (0.5 < self.confidence < 1 and 0.5 <= self.cap < 1):
            raise PlanError(f"confidence {self.confidence:g} must be above 0.5 and below 1")
        if self.test not in TESTS:
            raise PlanError(f"no test {self.test!r}; there are {', '.join(TESTS)}")

    @property
    def early(self) -> range:
        """The sample counts before ``least`` at which the test looks."""
        return range(self.look, self.least, self.look)

    def looks(self, samples: int) -> tuple[int, ...]:
        """Return the sample counts, up to ``samples``, at which the test looks."""
        upto = min(samples, self.most)
        usual = range(self.least, upto + 1, self.look)
        return (*(each for each in self.early if each <= upto), *usual)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, the variance of its error, and that variance's degrees of freedom."""

    mean: float
    variance: float
    freedom: float


@dataclass(frozen=True, slots=True)
class Tested:
    """The state of a test after ``samples``, with the confidence that the mean is at or above the
    floor: a rejection at 0.99 has the confidence 0.01."""

    verdict: Verdict
    samples: int
    confidence: float
    estimate: Estimate


def plain(scores: Floats) -> Estimate:
    """Return the mean of scores from 0 to 1; the variance has a floor for equal scores."""
    n = len(scores)
    spread = float(scores.var(ddof=1)) if n > 1 else 0.25
    return Estimate(float(scores.mean()), max(spread, (1 - 1 / n) / n) / n, max(n - 1.0, 1.0))


def stratified(scores: Floats, strata: Sequence[int]) -> Estimate:
    """Return the mean with the variance within strata only (Circinus v1, Theorem 1).

    Weights are the strata's shares of the samples; Satterthwaite's degrees of freedom.
    """
    labels = np.asarray(strata[: len(scores)])
    total, parts, mean = 0.0, 0.0, 0.0
    for label in np.unique(labels):
        inside = scores[labels == label]
        share = len(inside) / len(scores)
        within = plain(inside)
        mean += share * within.mean
        part = share**2 * within.variance
        total += part
        parts += part**2 / within.freedom
    return Estimate(mean, total, max(total**2 / parts, 1.0))


def at_least(estimate: Estimate, floor: float) -> float:
    """Return the one-sided confidence that the mean is at or above the floor: certain at 0."""
    if floor <= 0:
        return 1.0
    return float(stdtr(estimate.freedom, (estimate.mean - floor) / sqrt(estimate.variance)))


def _one_sided(confidence: float) -> float:
    return max(confidence, 1 - confidence)


def _two_sided(confidence: float) -> float:
    return abs(2 * confidence - 1)


TESTS: Mapping[str, Callable[[float], float]] = {
    "one-sided": _one_sided,
    "two-sided": _two_sided,
    "stratified": _one_sided,
}


def with_prior(estimate: Estimate, prior: Estimate) -> Estimate:
    """Return the mean after samples and a prior, weighted by their precision."""
    weight = prior.variance / (prior.variance + estimate.variance)
    mean = prior.mean + weight * (estimate.mean - prior.mean)
    return Estimate(mean, weight * estimate.variance, estimate.freedom)


def look(
    estimate: Estimate, samples: int, floor: float, rule: StopRule, prior: Estimate | None = None
) -> Tested:
    """Return the state of a test after ``samples`` samples."""
    if samples < rule.least:
        return _early(estimate, samples, floor, rule)
    if rule.population is not None:
        if samples >= rule.population:
            return _exact(estimate, samples, floor)
        left = 1 - samples / rule.population
        estimate = Estimate(estimate.mean, estimate.variance * left, estimate.freedom)
    return _judged(estimate, samples, floor, rule, prior)


def _judged(
    estimate: Estimate, samples: int, floor: float, rule: StopRule, prior: Estimate | None
) -> Tested:
    """Return the state of a test by Student's t, and by the prior if there is one."""
    measured = confidence = at_least(estimate, floor)
    cap = rule.cap
    if prior is not None:
        confidence = min(measured, at_least(with_prior(estimate, prior), floor))
        cap = max(cap, CONFIRMED)
    sure, test = rule.confidence, TESTS[rule.test]
    if confidence > 0.5 and test(confidence) >= sure:
        verdict = Verdict.ACCEPTED
    elif measured < 0.5 and test(measured) >= sure:
        verdict = Verdict.REJECTED
    elif samples >= rule.most:
        verdict = Verdict.ACCEPTED if confidence >= cap else Verdict.REJECTED
    else:
        verdict = Verdict.OPEN
    return Tested(verdict, samples, confidence, estimate)


def _early(estimate: Estimate, samples: int, floor: float, rule: StopRule) -> Tested:
    """Return the state before ``least`` samples: rejected by Chernoff's bound, or open."""
    chance = chernoff(estimate.mean, floor, samples)
    rejected = chance * len(rule.early) <= 1 - rule.confidence
    verdict = Verdict.REJECTED if rejected else Verdict.OPEN
    return Tested(verdict, samples, min(chance, at_least(estimate, floor)), estimate)


def chernoff(mean: float, floor: float, samples: int) -> float:
    """Return the most probability of a sample mean as low as ``mean`` at or above the floor."""
    if mean >= floor:
        return 1.0
    divergence = rel_entr(mean, floor) + rel_entr(1 - mean, 1 - floor)
    return float(np.exp(-samples * divergence))


def doubtful(tested: Tested, floor: float, rule: StopRule, prior: Estimate) -> bool:
    """Return whether a test without a prior has accepted a mean that would be open, or rejected,
    with this one."""
    if tested.verdict is not Verdict.ACCEPTED or tested.estimate.variance == 0:
        return False
    found = _judged(tested.estimate, tested.samples, floor, rule, prior)
    return found.verdict is not Verdict.ACCEPTED


def _exact(estimate: Estimate, samples: int, floor: float) -> Tested:
    """Return the verdict after the whole population, without error."""
    enough = estimate.mean >= floor
    verdict = Verdict.ACCEPTED if enough else Verdict.REJECTED
    return Tested(verdict, samples, float(enough), Estimate(estimate.mean, 0.0, estimate.freedom))
