"""Price the placements of one configuration: trim compliant ones exactly, estimate others."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from control.policies.compass.packing import QUARTERS
from control.policies.compass.search.composition import Deployment
from control.policies.compass.search.trimming import BATCHING, Trimmed, trimmed

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A compliant query plan. ``shares`` are quarters per stage (0: none); ``occupied`` those that
    shares and models' memory occupy; ``demand`` quarters per tier; ``run_s`` the profiled seconds
    per stage on a whole GPU of its tier; ``accuracy_low`` the accuracy's lower bound at 99 %."""

    configuration: int
    placement: int
    shares: tuple[int, ...]
    occupied: tuple[int, ...]
    latency_s: float
    usd_per_h: float
    demand: tuple[tuple[str, int], ...]
    run_s: tuple[float, ...]
    accuracy: float = 0.0
    accuracy_low: float = 0.0

    def with_accuracy(self, accuracy: float, low: float) -> "Priced":
        """Return the plan with a measured accuracy."""
        return replace(self, accuracy=accuracy, accuracy_low=low)

    def covers(self, other: "Priced") -> bool:
        """Return whether this plan is no worse in demand per tier, accuracy and cost."""
        ours, theirs = dict(self.demand), dict(other.demand)
        return (
            all(quarters <= theirs.get(tier, 0) for tier, quarters in ours.items())
            and self.accuracy >= other.accuracy
            and self.usd_per_h <= other.usd_per_h
        )


def priced(
    deployment: Deployment, configuration: int, seconds: Floats, sent: Floats, slo_s: float
) -> tuple[Priced, ...]:
    """Return the cheapest trimmed plan of a configuration within the SLO for each demand."""
    fitting = fits(deployment, configuration, seconds, sent, slo_s)
    found = []
    for placement in np.flatnonzero(fitting).tolist():
        for shares in _trimmed(deployment, configuration, placement, seconds, sent, slo_s):
            found.append(_plan(deployment, configuration, placement, shares, seconds))
    cheap: dict[tuple[tuple[str, int], ...], Priced] = {}
    for plan in found:
        other = cheap.get(plan.demand)
        if other is None or (plan.usd_per_h, plan.latency_s) < (other.usd_per_h, other.latency_s):
            cheap[plan.demand] = plan
    return tuple(cheap.values())


def may_be_affordable(
    deployment: Deployment,
    configuration: int,
    seconds: Floats,
    sent: Floats,
    slo_s: float,
    usd_per_h: float,
) -> bool:
    """Return whether a plan of a configuration within the SLO costs at most ``usd_per_h``.

    Only placements that cost less on the least shares and more on whole GPUs are trimmed.
    """
    placements = np.flatnonzero(fits(deployment, configuration, seconds, sent, slo_s))
    whole = deployment.price[:, placements].sum(axis=0)
    if (whole <= usd_per_h).any():
        return True
    return any(
        _usd_per_h(deployment, placement, shares) <= usd_per_h
        for placement in placements[whole / QUARTERS <= usd_per_h].tolist()
        for shares in _trimmed(deployment, configuration, placement, seconds, sent, slo_s)
    )


def fits(
    deployment: Deployment, configuration: int, seconds: Floats, sent: Floats, slo_s: float
) -> Bools:
    """Return the placements at which whole GPUs keep a configuration within the SLO."""
    whole = deployment.latency(seconds[None], sent[None], [configuration])[0]
    within: Bools = (whole <= slo_s) & deployment.fits[configuration]
    return within


def _trimmed(
    deployment: Deployment,
    configuration: int,
    placement: int,
    seconds: Floats,
    sent: Floats,
    slo_s: float,
) -> tuple[Trimmed, ...]:
    """Return the plan's share vectors."""
    stages = tuple(
        deployment.occupied(configuration, stage, placement, float(seconds[stage]))
        for stage in range(len(seconds))
    )
    transfers = deployment.transfers(sent, placement)
    return trimmed(stages, tuple(zip(deployment.paths, transfers, strict=True)), slo_s)


def _usd_per_h(deployment: Deployment, placement: int, shares: Trimmed) -> float:
    return float(deployment.price[:, placement] @ np.array(shares.occupied)) / QUARTERS


def _plan(
    deployment: Deployment, configuration: int, placement: int, shares: Trimmed, seconds: Floats
) -> Priced:
    space = deployment.space
    tiers = [space.tiers[t] for t in space.placements[placement].tolist()]
    demand: dict[str, int] = {}
    for tier, quarters in zip(tiers, shares.occupied, strict=True):
        if quarters:
            demand[tier] = demand.get(tier, 0) + quarters
    return Priced(
        configuration=configuration,
        placement=placement,
        shares=shares.shares,
        occupied=shares.occupied,
        latency_s=shares.latency_s,
        usd_per_h=_usd_per_h(deployment, placement, shares),
        demand=tuple(sorted(demand.items())),
        run_s=tuple((seconds * deployment.slowdown[:, placement]).tolist()),
    )


def cheapest_estimates(
    deployment: Deployment, configurations: Ints, seconds: Floats, sent: Floats, slo_s: float
) -> tuple[Floats, Ints]:
    """Return the least cost of each configuration by predicted seconds, and its placement.

    Shares are continuous: stages divide the slack by the square root of price * seconds, which
    minimises sum price * share at a given sum seconds / share. Of a batched stage only the part
    that grows with the batch counts. The cost is infinite if whole GPUs miss the SLO.
    ``seconds[i]`` and ``sent[i]`` belong to ``configurations[i]``.
    """
    latency = deployment.latency(seconds, sent, configurations)
    batched = np.array([stage.batched for stage in deployment.space.stages])
    stretched = np.where(batched, BATCHING, 1.0) * seconds
    paid = deployment.price > 0
    compute = np.where(paid, stretched[:, :, None] * deployment.factors(configurations), 0.0)
    slack = slo_s - latency + compute.sum(axis=1)
    root = np.sqrt(deployment.price * compute).sum(axis=1)
    cost = root**2 / np.maximum(slack, 1e-9)
    least = np.where(paid, deployment.price / QUARTERS, 0.0).sum(axis=0)
    within = (latency <= slo_s) & deployment.fits[configurations]
    cost = np.where(within, np.maximum(cost, least), np.inf)
    at = cost.argmin(axis=1)
    return cost[np.arange(len(cost)), at], at
