"""CAMO: cost-aware multi-objective search for a session's query plan, with an ask-tell interface.

``ask`` proposes the configuration and placement with the largest utility

    U = Pr[accuracy >= floor] * Pr[latency <= SLO] / (expected seconds of profiling)

(Compass, Section 4.1; the paper divides by the plan's latency). ``tell`` records the result
of profiling. Accuracy depends on the configuration only, so one profile covers all placements:
their latencies are composed of the seconds of the stages (``composition.py``). Once a compliant
plan is known, proposals are ranked by the expected saving per second of profiling instead:

    U = Pr[accuracy >= floor] * max(0, best cost - estimated trimmed cost) / seconds

The cheapest of many accepted configurations is often one with lucky samples. If the search's other
profiles predict an accuracy that makes its cheapest plan ``doubtful`` (sequential_test.py), the
plan serves, but the next proposal is its configuration again, with the prediction as the test's
prior: more samples confirm or reject it.

A committee of past searches predicts accuracy until the search's own Gaussian process is as
accurate. The search is deterministic: equal tells lead to equal asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from control.policies.compass.search.committee import Committee
from control.policies.compass.search.composition import Deployment, HopBytes, StageTimes, meets
from control.policies.compass.search.gaussian_process import GaussianProcess, Kernel
from control.policies.compass.search.pricing import (
    Priced,
    cheapest_estimates,
    may_be_affordable,
    priced,
)
from control.policies.compass.search.sequential_test import (
    Estimate,
    StopRule,
    Tested,
    Verdict,
    doubtful,
)
from control.problem.problem import PlanError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RULE = StopRule()
PRIOR_ACCURACY, PRIOR_SPREAD = 0.7, 0.15
SAMPLE_SPREAD = 0.3  # standard deviation of scores before the first profile
LOOK_UP = 0.02  # of a stage's seconds, if its output is cached
FORCED_AFTER = 10  # profiles in a row without a compliant plan, after which the own model decides
LIKELY = 0.005  # probability of accuracy below which configurations are not priced
PRICED = 60  # the likeliest configurations, priced first
OPTIMISM = 0.2  # weight of the case that stages are faster than predicted by one deviation


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """A session's objectives: least accuracy, most seconds, most $ an hour (inf: no limit)."""

    accuracy: float
    latency_s: float
    usd_per_h: float = float("inf")

    def __post_init__(self) -> None:
        """Raise ``PlanError`` for invalid objectives."""
        if not 0 <= self.accuracy <= 1:
            raise PlanError(f"the SLO asks for accuracy {self.accuracy:g}; it must be 0 to 1")
        if self.latency_s <= 0 or self.usd_per_h < 0:
            raise PlanError("the SLO's latency must be above 0 and its cost 0 or more")


@dataclass(frozen=True, slots=True)
class Past:
    """Observations of an earlier search, by configuration of this space.

    ``accuracy[i]``, ``error[i]`` (its variance) and ``seconds[i, s]`` per stage belong to
    ``configuration[i]``.
    """

    configuration: Ints
    accuracy: Floats
    error: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The plan to profile next. ``origin``: "committee" or "own" model; ``samples``: expected
    number of samples; ``prior``: the accuracy that is predicted for a doubtful plan."""

    configuration: int
    placement: int
    utility: float
    origin: str
    samples: int
    prior: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """The profile of a configuration: its accuracy test, and its stages' reference seconds."""

    configuration: int
    tested: Tested
    seconds: tuple[float, ...]
    sent: tuple[float, ...] | None = None  # bytes per hop; None: known before profiling


def may_comply(deployment: Deployment, slo: Slo, found: Profiled) -> bool:
    """Return whether a plan of a configuration is fast and cheap enough, by a profile with sizes;
    if none is, its accuracy needs no further samples."""
    c, seconds, sent = found.configuration, np.array(found.seconds), np.array(found.sent)
    return may_be_affordable(deployment, c, seconds, sent, slo.latency_s, slo.usd_per_h)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Options of a search. ``committee``: "better" or "top-k" (Circinus v1); ``surrogate``: how
    latency is predicted, "composed" of stages or for whole "plans" (``plan_search.py``);
    ``history``: the maximum number of past searches that it uses."""

    committee: str = "better"
    surrogate: str = "composed"
    rule: StopRule = RULE
    history: int = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestConfiguration:
    """The profiled configuration closest to the SLO: its accuracy, its least seconds, the least $
    an hour of its plans that are fast enough (None: there is none), and the cheapest of these plans
    if it is cheap enough."""

    configuration: int
    violation: float
    accuracy: float
    latency_s: float
    usd_per_h: float | None = None
    plan: Priced | None = None

    def accuracy_text(self, wanted: float) -> str:
        """Return its accuracy; if that reaches ``wanted``, with the bound from its samples."""
        found = f"accuracy {self.accuracy:.3f}"
        if self.plan is None or self.accuracy < wanted:
            return found
        return f"{found}, of which its samples ensure {max(0.0, self.plan.accuracy_low):.3f}"


class SessionSearch:
    """The search for one session. ``plans`` holds the Pareto-optimal compliant plans so far."""

    def __init__(
        self,
        deployment: Deployment,
        slo: Slo,
        options: SearchOptions,
        sent: Floats | None,
        history: Sequence[Past] = (),
    ) -> None:
        """``sent[c, h]`` are the bytes of hop h in configuration c; None: profiles show them.

        ``history`` is ordered oldest first; its newest ``options.history`` searches are used.
        """
        self.deployment, self.slo, self.options = deployment, slo, options
        self._space = deployment.space
        self._hops = HopBytes(self._space, sent)
        count = self._space.configuration_count
        history = [past for past in history if len(past.configuration)]
        history = history[max(0, len(history) - options.history) :]
        self._times = StageTimes(self._space, [_filled(past, count) for past in history])
        members = [posterior(self._space.configurations, past) for past in history]
        self._committee = Committee(
            [mean for mean, _ in members], [sd for _, sd in members], options.committee
        )
        self._own = _accuracy_process(self._space.configurations, history)
        self._profiled = np.zeros(count, dtype=bool)
        self._cached = np.zeros((count, len(self._space.stages)), dtype=bool)
        self._offered: dict[int, tuple[Priced, ...]] = {}  # compliant plans by configuration
        self._doubtful: Profiled | None = None  # that of the cheapest plan, or None
        self._fruitless = 0
        self._spread = SAMPLE_SPREAD
        self.plans: tuple[Priced, ...] = ()
        self.nearest: NearestConfiguration | None = None

    @property
    def best(self) -> Priced | None:
        """The cheapest compliant plan so far; the most accurate one at equal cost."""
        if not self.plans:
            return None
        return min(self.plans, key=lambda plan: (plan.usd_per_h, -plan.accuracy))

    def ask(self) -> Proposal | None:
        """Return the next plan to profile; None if all are, or if no other one is predicted to
        cost less and to be accurate enough with a probability above ``LIKELY``."""
        if self._doubtful is not None and (best := self.best) is not None:
            return Proposal(
                configuration=best.configuration, placement=best.placement, utility=0.0,
                origin="own", samples=self.options.rule.most,
                prior=self._predicted(best.configuration),
            )  # fmt: skip
        if self._profiled.all():
            return None
        likely, origin = self._likely()
        quick, utility = self._ranked(likely)
        utility[self._profiled] = -1.0
        at = int(np.argmax(utility))
        if utility.flat[at] <= 0.0:
            if self.plans:
                return None
            at = self._fallback(likely, quick)
        configuration, placement = divmod(at, utility.shape[1])
        return Proposal(
            configuration=configuration,
            placement=placement,
            utility=float(max(utility.flat[at], 0.0)),
            origin=origin,
            samples=int(self._expected_samples()[configuration]),
        )

    def tell(self, found: Profiled) -> tuple[Priced, ...]:
        """Record a profile; return the trimmed compliant plans that it adds.

        The second profile of a doubtful plan's configuration replaces the first.
        """
        c, prior = found.configuration, self._predicted(found.configuration)
        again = self._confirmed(c) is not None
        if self._doubtful is not None and not again:
            self._learn_accuracy(self._doubtful)
        self._doubtful = None
        self._times.tell(c, found.seconds)
        if found.sent is not None:
            self._hops.tell(c, found.sent)
        self._profiled[c] = True
        self._cached |= self._space.prefixes == self._space.prefixes[c]
        self._offer(c, ())
        added = self._compliant(found)
        self._fruitless = 0 if added else self._fruitless + 1
        self._offer(c, added)
        cheapest = self.best is not None and self.best.configuration == c
        rule = self.options.rule
        if cheapest and not again and doubtful(found.tested, self.slo.accuracy, rule, prior):
            self._doubtful = found  # its accuracy is learnt once, from all samples
        else:
            self._learn_accuracy(found)
        return added

    def _confirmed(self, configuration: int) -> Priced | None:
        """Return the plan that a profile of a configuration would confirm; None: there is none."""
        waits = self._doubtful is not None and self._doubtful.configuration == configuration
        return self.best if waits else None

    def _learn_accuracy(self, found: Profiled) -> None:
        c, estimate = found.configuration, found.tested.estimate
        self._committee.tell(c, estimate.mean, float(self._own.mean[c]))
        self._own.tell(c, estimate.mean, max(estimate.variance, 1e-6))
        spread = np.sqrt(max(estimate.variance * found.tested.samples, 1e-4))
        self._spread = 0.5 * (self._spread + float(np.clip(spread, 0.05, 0.5)))

    def _offer(self, configuration: int, plans: tuple[Priced, ...]) -> None:
        """Offer the compliant plans of a configuration instead of those offered before."""
        if not plans and configuration not in self._offered:
            return
        self._offered[configuration] = plans
        self.plans = _pareto([plan for some in self._offered.values() for plan in some])

    def _predicted(self, configuration: int) -> Estimate:
        """Return the accuracy that the search's own model predicts for a configuration."""
        own = self._own
        return Estimate(float(own.mean[configuration]), float(own.sd[configuration]) ** 2, inf)

    def exclude(self, configuration: int) -> None:
        """Exclude a configuration whose operators fail from all further proposals."""
        if self._confirmed(configuration) is not None:
            self._doubtful = None
        self._offer(configuration, ())
        self._profiled[configuration] = True
        self._fruitless += 1

    def _likely(self) -> tuple[Floats, str]:
        """Return each configuration's probability to reach the accuracy, and the predictor."""
        floor = self.slo.accuracy

        def above(mean: Floats, deviation: Floats) -> Floats:
            probability: Floats = ndtr((mean - floor) / deviation)
            return probability

        if self._committee.mature or self._fruitless >= FORCED_AFTER:
            return above(self._own.mean, self._own.sd), "own"
        return self._committee.vote(above), "committee"

    def _ranked(self, likely: Floats) -> tuple[Floats, Floats]:
        """Return the probability that every plan is fast enough, and its utility, by configuration
        and placement."""
        seconds = self._times.seconds()
        latency = self.deployment.latency(seconds, self._hops.bytes)
        variance = self.deployment.variance(seconds, self._times.deviation())
        quick: Floats = meets(latency, variance, self.slo.latency_s) * self.deployment.fits
        effort = np.maximum(self._expected_samples() * self._uncached(seconds), 1e-9)
        return quick, self._utility(likely, quick, seconds) / effort[:, None]

    def _utility(self, likely: Floats, quick: Floats, seconds: Floats) -> Floats:
        best = self.best
        if best is None:
            return likely[:, None] * quick
        utility = np.zeros_like(quick)
        open_ones = np.flatnonzero((likely > LIKELY) & ~self._profiled)
        order = open_ones[np.argsort(-likely[open_ones], kind="stable")]
        quickly = seconds * np.exp(-self._times.deviation())
        for some in (order[:PRICED], order[PRICED:]):  # the others if none of the first is cheaper
            for guess, weight in ((seconds, 1 - OPTIMISM), (quickly, OPTIMISM)):
                cost, placement = cheapest_estimates(
                    self.deployment, some, guess[some], self._hops.bytes[some], self.slo.latency_s
                )
                saving = np.maximum(0.0, best.usd_per_h - cost)
                utility[some, placement] += weight * likely[some] * saving
            if utility.any():
                break
        return utility

    def _fallback(self, likely: Floats, quick: Floats) -> int:
        joint = likely[:, None] * quick + 1e-12 * (likely[:, None] + quick)
        joint[self._profiled] = -1.0
        return int(np.argmax(joint))

    def _expected_samples(self) -> Floats:
        """Return the expected samples until a verdict, if predicted means are true."""
        rule = self.options.rule
        mature = self._committee.mature or self._fruitless >= FORCED_AFTER
        mean = self._own.mean if mature else self._committee.mean()
        gap = np.maximum(np.abs(mean - self.slo.accuracy), 1e-3)
        needed: Floats = np.clip((2.33 * self._spread / gap) ** 2, rule.least, rule.most)
        return needed

    def _uncached(self, seconds: Floats) -> Floats:
        """Return the predicted seconds per sample; stages with cached outputs cost a look-up."""
        total: Floats = (np.where(self._cached, LOOK_UP, 1.0) * seconds).sum(axis=1)
        return total

    def _compliant(self, found: Profiled) -> tuple[Priced, ...]:
        c, sent = found.configuration, self._hops.bytes[found.configuration]
        seconds = np.array(found.seconds)
        accepted = found.tested.verdict is Verdict.ACCEPTED
        offered: tuple[Priced, ...] = ()
        if accepted or not self.plans:  # without plans, for the nearest
            offered = priced(self.deployment, c, seconds, sent, self.slo.latency_s)
        whole = self.deployment.latency(seconds[None], sent[None], [c])[0]
        fitting = np.where(self.deployment.fits[c], whole, np.inf)
        estimate = found.tested.estimate
        low = estimate.mean - 2.33 * float(np.sqrt(estimate.variance))
        self._note_nearest(found, float(fitting.min()), offered, low)
        return tuple(
            plan.with_accuracy(estimate.mean, low)
            for plan in offered
            if accepted and plan.usd_per_h <= self.slo.usd_per_h
        )

    def _note_nearest(
        self, found: Profiled, least_s: float, offered: Sequence[Priced], low: float
    ) -> None:
        accuracy = found.tested.estimate.mean
        cheapest = min(offered, key=lambda plan: plan.usd_per_h, default=None)
        usd = None if cheapest is None else cheapest.usd_per_h
        violation = max(0.0, self.slo.accuracy - accuracy)
        violation += max(0.0, least_s / self.slo.latency_s - 1)
        if usd is not None and usd > self.slo.usd_per_h:
            violation += usd / max(self.slo.usd_per_h, 1e-9) - 1
        if self.nearest is None or violation < self.nearest.violation:
            within = cheapest is not None and cheapest.usd_per_h <= self.slo.usd_per_h
            self.nearest = NearestConfiguration(
                configuration=found.configuration, violation=violation, accuracy=accuracy,
                latency_s=least_s, usd_per_h=usd,
                plan=cheapest.with_accuracy(accuracy, low) if cheapest and within else None,
            )  # fmt: skip


def _pareto(plans: Sequence[Priced]) -> tuple[Priced, ...]:
    """Return the Pareto-optimal plans in demand per tier, accuracy and cost."""
    kept: list[Priced] = []
    for plan in sorted(plans, key=lambda each: (each.usd_per_h, each.latency_s, -each.accuracy)):
        if not any(other.covers(plan) for other in kept):
            kept.append(plan)
    return tuple(kept)


def _filled(past: Past, count: int) -> Floats:
    seconds = np.full((count, past.seconds.shape[1]), np.nan)
    seconds[past.configuration] = past.seconds
    return seconds


def posterior(codes: Ints, past: Past) -> tuple[Floats, Floats]:
    """Return the mean and deviation that a past search predicts for every configuration."""
    process = _accuracy_process(codes, ())
    for c, accuracy, error in zip(past.configuration, past.accuracy, past.error, strict=True):
        process.tell(int(c), float(accuracy), max(float(error), 1e-6))
    process.refit()
    return process.mean, process.sd


def _accuracy_process(codes: Ints, history: Sequence[Past]) -> GaussianProcess:
    prior = float(np.mean([past.accuracy.mean() for past in history])) if history else None
    return GaussianProcess(
        codes,
        [0] * codes.shape[1],
        Kernel((0.3,), PRIOR_SPREAD**2),
        prior_mean=PRIOR_ACCURACY if prior is None else prior,
        fit=True,
    )
