"""Price the placements of one configuration: compliant ones trimmed exactly, others estimated."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from control.policies.compass.composition import Deployment
from control.policies.compass.packing import QUARTERS
from control.policies.compass.trimming import BATCHING, Trimmed, trimmed

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A compliant query plan. ``shares`` in quarters per stage (0: none), ``occupied`` what they
    and the models' memory occupy; ``demand`` quarters per tier; ``accuracy_low`` at 99 %."""

    configuration: int
    placement: int
    shares: tuple[int, ...]
    occupied: tuple[int, ...]
    latency_s: float
    usd_per_h: float
    demand: tuple[tuple[str, int], ...]
    accuracy: float = 0.0
    accuracy_low: float = 0.0

    def with_accuracy(self, accuracy: float, low: float) -> "Priced":
        """The plan with a measured accuracy."""
        return replace(self, accuracy=accuracy, accuracy_low=low)

    def covers(self, other: "Priced") -> bool:
        """Whether this plan takes no more of any tier and is as accurate and cheap."""
        ours, theirs = dict(self.demand), dict(other.demand)
        return (
            all(quarters <= theirs.get(tier, 0) for tier, quarters in ours.items())
            and self.accuracy >= other.accuracy
            and self.usd_per_h <= other.usd_per_h
        )


def priced(
    deployment: Deployment, configuration: int, seconds: Floats, sent: Floats, slo_s: float
) -> tuple[Priced, ...]:
    """Every Pareto-optimal trimmed plan of a configuration within the latency SLO."""
    whole = deployment.latency(seconds[None], sent[None])[0]
    fitting = np.flatnonzero((whole <= slo_s) & deployment.fits[configuration])
    found = []
    for placement in fitting.tolist():
        for shares in _trimmed(deployment, configuration, placement, seconds, sent, slo_s):
            found.append(_plan(deployment, configuration, placement, shares))
    cheap: dict[tuple[tuple[str, int], ...], Priced] = {}
    for plan in found:
        other = cheap.get(plan.demand)
        if other is None or (plan.usd_per_h, plan.latency_s) < (other.usd_per_h, other.latency_s):
            cheap[plan.demand] = plan
    return tuple(cheap.values())


def _trimmed(
    deployment: Deployment,
    configuration: int,
    placement: int,
    seconds: Floats,
    sent: Floats,
    slo_s: float,
) -> tuple[Trimmed, ...]:
    """The plan's share vectors; of a tree, each branch may use the whole SLO."""
    stages = tuple(
        deployment.occupied(configuration, stage, placement, float(seconds[stage]))
        for stage in range(len(seconds))
    )
    rest = deployment.transfers(sent, placement)
    if len(rest) == 1:
        return trimmed(stages, rest[0], slo_s)
    return tuple(
        each
        for each in trimmed(stages, 0.0, float("inf"))
        if deployment.stretched(stages, each.shares, rest) <= slo_s
    )


def _plan(deployment: Deployment, configuration: int, placement: int, shares: Trimmed) -> Priced:
    space = deployment.space
    tiers = [space.tiers[t] for t in space.placements[placement].tolist()]
    demand: dict[str, int] = {}
    for tier, quarters in zip(tiers, shares.occupied, strict=True):
        if quarters:
            demand[tier] = demand.get(tier, 0) + quarters
    usd = float(deployment.price[:, placement] @ np.array(shares.occupied)) / QUARTERS
    return Priced(
        configuration=configuration,
        placement=placement,
        shares=shares.shares,
        occupied=shares.occupied,
        latency_s=shares.latency_s,
        usd_per_h=usd,
        demand=tuple(sorted(demand.items())),
    )


def cheapest_estimate(
    deployment: Deployment, seconds: Floats, sent: Floats, slo_s: float, configuration: int
) -> tuple[float, int]:
    """The least cost of a configuration by predicted seconds, and its placement.

    Shares are taken as continuous: of the slack beyond transfers, stages share by the square root
    of price times seconds, which is the optimum of sum price * share at sum seconds / share. Of a
    batched stage only the part that grows with the batch counts. Infinite where not even whole
    GPUs are quick enough.
    """
    latency = deployment.latency(seconds[None], sent[None])[0]
    batched = np.array([stage.batched for stage in deployment.space.stages])
    stretched = np.where(batched, BATCHING, 1.0) * seconds
    compute = stretched[:, None] * deployment.slowdown
    paid = deployment.price > 0
    slack = slo_s - latency + np.where(paid, compute, 0.0).sum(axis=0)
    root = np.sqrt(deployment.price * compute)
    cost = np.where(paid, root, 0.0).sum(axis=0) ** 2 / np.maximum(slack, 1e-9)
    least = np.where(paid, deployment.price / QUARTERS, 0.0).sum(axis=0)
    cost = np.maximum(cost, least)
    ok = (latency <= slo_s) & deployment.fits[configuration]
    cost = np.where(ok, cost, np.inf)
    at = int(np.argmin(cost))
    return float(cost[at]), at
