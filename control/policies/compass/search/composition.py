"""Compose the latency of every query plan from its stages' seconds and its transfers.

    latency(c, p) = max over leaves of  sum_s seconds[c, s] * slowdown[s, p] * pace[c, s, p]
                                      + sum_hops bytes * seconds_per_byte[hop, p] + delay[hop, p]

A link carries the records of a session one after another. If the session's queries per second are
known, each transfer waits as in an M/D/1 queue: ``rho s / (2 (1 - rho))`` for ``s`` seconds of
sending, where ``rho`` is the utilisation of the link; from ``rho`` = 1 on the wait is infinite.

Profiling one configuration gives the seconds of its stages on the reference device; for every
plan with the same options up to a stage, the seconds of that stage are then known on every tier. A
Gaussian process on the logarithm of seconds predicts the other stages, around the mean of past
searches if there are any.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from control.policies.compass.search.gaussian_process import GaussianProcess, Kernel
from control.policies.compass.search.trimming import Occupied
from control.problem.space import Space, leaves

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.int64] | Sequence[int] | slice  # of configurations

EVERY = slice(None)
UNSEEN = 1.0  # deviation of log seconds without history
ALIKE = 0.12  # least deviation of log seconds with history
OWN, UPSTREAM = 0.8, 0.15  # theta of a stage's own knobs, and of upstream knobs
KNOWN = 1e-4  # variance of the error of a profiled stage's log seconds


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Tiers and links as one session sees them, per placement ``p`` of the space.

    ``slowdown[s, p]`` is the factor on the reference seconds of stage s, and ``pace[c, s, p]`` that
    by which it was observed to differ (None: nowhere); ``per_byte[h, p]`` and
    ``delay[h, p]`` are the seconds of hop h: one hop into each stage, then one back per leaf;
    ``price[s, p]`` is $ an hour of the stage's GPU (0: free); ``memory[c, s]`` the bytes of the
    model and ``capacity[s, p]`` those of the GPU; ``fits[c, p]`` whether all models fit.
    """

    space: Space
    slowdown: Floats
    per_byte: Floats
    delay: Floats
    price: Floats
    memory: Floats
    capacity: Floats
    fits: Bools
    own_tiers: frozenset[str] = frozenset()  # one per session, free
    qps: float = 0.0  # of the session; 0: not known
    pace: Floats | None = None

    def latency(self, seconds: Floats, sent: Floats, of: Rows = EVERY) -> Floats:
        """Return the seconds of every plan: configurations x placements.

        ``seconds[c, s]`` are on the reference device; ``sent[c, h]`` are the bytes of every hop.
        ``of`` are the configurations of their rows.
        """
        factors = self.factors(of)
        longest: Floats = np.full((len(seconds), self.slowdown.shape[1]), -np.inf)
        for number, path in enumerate(self.paths):
            hops = [*path, len(self.space.stages) + number]
            run_s = _products(seconds[:, path], factors[:, path])
            path_s = run_s + self._sending(sent, hops)
            longest = np.maximum(longest, path_s + self.delay[hops].sum(axis=0))
        return longest

    def _sending(self, sent: Floats, hops: Sequence[int]) -> Floats:
        """Return the seconds of sending over links and of waiting for them, of every plan."""
        if not self.qps:
            sending: Floats = sent[:, hops] @ self.per_byte[hops]
            return sending
        sending = queued(sent[:, hops, None] * self.per_byte[hops], self.qps).sum(axis=1)
        return sending

    def variance(self, seconds: Floats, deviation: Floats) -> Floats:
        """Return the largest variance of a path's seconds, from the stages' log deviations."""
        widest: Floats = np.zeros((len(seconds), self.slowdown.shape[1]))
        squares = self.factors() ** 2
        for path in self.paths:
            spread = (seconds[:, path] * deviation[:, path]) ** 2
            widest = np.maximum(widest, _products(spread, squares[:, path]))
        return widest

    def factors(self, of: Rows = EVERY) -> Floats:
        """Return the factors on the reference seconds of configurations: rows x stages x
        placements; one row if they are the same for all."""
        return self.slowdown[None] if self.pace is None else self.pace[of] * self.slowdown

    def occupied(self, configuration: int, stage: int, placement: int, seconds: float) -> Occupied:
        """Return a stage's occupancy of its tier's GPU at this placement."""
        described = self.space.stages[stage]
        tier = self.space.tiers[int(self.space.placements[placement, stage])]
        return Occupied(
            seconds=seconds * float(self.factors([configuration])[0, stage, placement]),
            tier=tier,
            batched=described.batched,
            memory=float(self.memory[configuration, stage] / self.capacity[stage, placement]),
            free=described.cpu or tier in self.own_tiers,
        )

    def transfers(self, sent: Floats, placement: int) -> tuple[float, ...]:
        """Return the total transfer seconds of every path to a leaf."""
        found = []
        for number, path in enumerate(self.paths):
            hops = [*path, len(self.space.stages) + number]
            seconds = queued(sent[hops] * self.per_byte[hops, placement], self.qps)
            found.append(float(seconds.sum() + self.delay[hops, placement].sum()))
        return tuple(found)

    @cached_property
    def paths(self) -> list[list[int]]:
        """The stages from the root to each leaf."""
        at = {stage.name: index for index, stage in enumerate(self.space.stages)}
        found = []
        for leaf in leaves(self.space.stages):
            path, name = [], self.space.stages[leaf].name
            while name:
                path.append(at[name])
                name = self.space.stages[at[name]].parent
            found.append(path[::-1])
        return found


def _products(values: Floats, factors: Floats) -> Floats:
    """Return the sums over stages of values, rows x stages, times ``factors``."""
    if len(factors) == 1:
        product: Floats = values @ factors[0]
        return product
    summed: Floats = np.einsum("cs,csp->cp", values, factors)
    return summed


def queued(seconds: Floats, qps: float) -> Floats:
    """Return the seconds of transfers with their waits in the queue of their link."""
    busy = qps * seconds
    wait = busy * seconds / (2 * np.maximum(1 - busy, 1e-9))
    return np.where(busy < 1, seconds + wait, np.inf)


def meets(latency: Floats, variance: Floats, slo_s: float) -> Floats:
    """Return the probability that a latency of this mean and variance is at most the SLO."""
    probability: Floats = ndtr((slo_s - latency) / np.sqrt(variance + 1e-12))
    return probability


def hop_bytes(space: Space, given: float, output: Sequence[float]) -> tuple[float, ...]:
    """Return the bytes of every hop: into each stage, then back from each leaf.

    ``given`` are those of the input, ``output`` those that each stage sends on.
    """
    at = {stage.name: index for index, stage in enumerate(space.stages)}
    into = [output[at[stage.parent]] if stage.parent else given for stage in space.stages]
    return (*into, *(output[leaf] for leaf in leaves(space.stages)))


class HopBytes:
    """Bytes of every hop by configuration, learned from profiles.

    Configurations with equal options up to the sending stage send the same bytes. A hop without a
    profile gets the mean of the known ones, or 0.
    """

    def __init__(self, space: Space, known: Floats | None = None) -> None:
        """``known[c, h]`` are bytes known before profiling; None: none are."""
        ends = leaves(space.stages)
        at = {stage.name: index for index, stage in enumerate(space.stages)}
        senders = [at[stage.parent] if stage.parent else -1 for stage in space.stages]
        count = space.configuration_count
        self._senders = (*senders, *ends)
        self._prefixes = space.prefixes
        self._known = known is not None
        self.bytes: Floats = (
            np.zeros((count, len(self._senders))) if known is None else known.copy()
        )
        self._seen = np.full(self.bytes.shape, self._known)

    def tell(self, configuration: int, sent: Sequence[float]) -> None:
        """Record the observed bytes of each hop of a configuration."""
        for hop, value in enumerate(sent):
            sender = self._senders[hop]
            same = (
                np.ones(len(self.bytes), dtype=bool)
                if sender < 0
                else self._prefixes[:, sender] == self._prefixes[configuration, sender]
            )
            self.bytes[same, hop] = value
            self._seen[same, hop] = True
            unknown = ~self._seen[:, hop]
            if unknown.any():
                self.bytes[unknown, hop] = self.bytes[~unknown, hop].mean()


class StageTimes:
    """Predicted seconds of every stage of every configuration, and their log deviation."""

    def __init__(self, space: Space, history: Sequence[Floats] = ()) -> None:
        """``history`` has the seconds of past searches by configuration and stage; nan: unknown."""
        self._models = [
            _StageTime(space, stage, [past[:, stage] for past in history])
            for stage in range(len(space.stages))
        ]
        self._prefixes = space.prefixes

    def tell(self, configuration: int, seconds: Sequence[float]) -> None:
        """Add the seconds of the stages of a profiled configuration."""
        for stage, model in enumerate(self._models):
            model.tell(int(self._prefixes[configuration, stage]), seconds[stage])

    def seconds(self) -> Floats:
        """Return the median seconds, configurations x stages."""
        return np.exp(self._gathered([model.mean for model in self._models]))

    def deviation(self) -> Floats:
        """Return the deviations of log seconds, configurations x stages."""
        return self._gathered([model.sd for model in self._models])

    def _gathered(self, columns: Sequence[Floats]) -> Floats:
        return np.stack(
            [column[self._prefixes[:, stage]] for stage, column in enumerate(columns)], axis=1
        )


class _StageTime:
    """Model of one stage's log seconds over the options of the stage and those upstream."""

    def __init__(self, space: Space, stage: int, history: Sequence[Floats]) -> None:
        prefixes = space.prefixes[:, stage]
        count = int(prefixes.max()) + 1
        first = np.zeros(count, dtype=np.int64)
        first[prefixes[::-1]] = np.arange(len(prefixes))[::-1]
        knobs = list(space.upstream[stage])
        own = set(space.own[stage])
        codes = space.configurations[first][:, knobs] if knobs else np.zeros((count, 1), np.int64)
        groups = [0 if knob in own else 1 for knob in knobs] or [0]
        logs = [_by_prefix(np.log(np.maximum(past, 1e-9)), prefixes, count) for past in history]
        self._prior, spread = _pooled(logs, count)
        self._reported: set[int] = set()
        self._process = GaussianProcess(
            codes, groups, Kernel((OWN, UPSTREAM), spread**2), prior_mean=0.0, fit=False
        )

    def tell(self, prefix: int, seconds: float) -> None:
        value = float(np.log(max(seconds, 1e-9)))
        if prefix in self._reported:
            return  # equal options up to this stage take equal time
        if self._prior is None:
            self._prior = np.full(len(self._process.mean), value)
        self._reported.add(prefix)
        self._process.tell(prefix, value - float(self._prior[prefix]), KNOWN)

    @property
    def mean(self) -> Floats:
        prior: Floats = np.zeros(1) if self._prior is None else self._prior
        mean: Floats = self._process.mean + prior
        return mean

    @property
    def sd(self) -> Floats:
        return self._process.sd


def _by_prefix(values: Floats, prefixes: NDArray[np.int64], count: int) -> Floats:
    """Return the mean of the known values of each prefix; nan: none known."""
    known = ~np.isnan(values)
    total = np.bincount(prefixes[known], values[known], minlength=count)
    number = np.bincount(prefixes[known], minlength=count)
    mean: Floats = np.where(number > 0, total / np.maximum(number, 1), np.nan)
    return mean


def _pooled(logs: Sequence[Floats], count: int) -> tuple[Floats | None, float]:
    """Return the history's mean by prefix, gaps filled by its overall mean, and its spread."""
    if not logs:
        return None, UNSEEN
    stacked = np.stack(logs)
    known = ~np.isnan(stacked)
    if not known.any():
        return None, UNSEEN
    number = known.sum(axis=0)
    total = np.where(known, stacked, 0.0).sum(axis=0)
    mean = np.where(number > 0, total / np.maximum(number, 1), np.nan)
    overall = float(stacked[known].mean())
    spread = np.where(known, stacked - np.where(number > 0, mean, 0.0), 0.0)
    several = int(np.maximum(number - 1, 0).sum())
    within = float(np.sqrt((spread**2).sum() / several)) if several else UNSEEN
    return np.where(np.isnan(mean), overall, mean), float(np.clip(within, ALIKE, UNSEEN))
