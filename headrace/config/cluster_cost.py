"""Compute what a cluster costs, in $ per hour and per thousand answers.

Only ``cluster.types`` have prices: devices that the user owns cost nothing.
"""

from collections.abc import Mapping

from headrace.config.cluster import Cluster


def prices(cluster: Cluster) -> dict[str, float]:
    """Return the price of each type in $ per hour; empty if the cluster names no types."""
    return {each.name: each.price for each in cluster.types}


def cost_per_hour(cluster: Cluster) -> float | None:
    """Return the cost of the cluster's workers, $ per hour; None if it names no types."""
    if not cluster.types:
        return None
    return cost_of(prices(cluster), dict(cluster.devices))


def cost_of(by_type: Mapping[str, float], workers: Mapping[str, int]) -> float:
    """Return the cost of ``workers`` by device type, $ per hour."""
    return sum(by_type.get(name, 0.0) * count for name, count in workers.items())


def per_thousand(usd_per_h: float | None, answers_per_s: float) -> float | None:
    """Return $ per thousand answers at a rate of answers; None without a price or an answer."""
    if usd_per_h is None or answers_per_s <= 0:
        return None
    return usd_per_h / 3600 / answers_per_s * 1000


def cost_text(usd_per_h: float | None, answers_per_s: float) -> str:
    """Return both costs as a sentence's part; "" without a price."""
    each = per_thousand(usd_per_h, answers_per_s)
    if usd_per_h is None:
        return ""
    return f"{usd_per_h:.4f} $/h" + ("" if each is None else f", {each:.5f} $ per 1000 answers")


def run_costs(
    cluster: Cluster, answered: int, seconds: float, usd_per_h: float | None = None
) -> dict[str, float | None]:
    """Return the columns ``usd_per_h`` and ``usd_per_1000_answers`` of a run of ``seconds``.

    ``usd_per_h`` is the mean cost of devices that were rented while it ran; None: as filed.

    Empty if the cluster names no types.
    """
    usd_per_h = cost_per_hour(cluster) if usd_per_h is None else usd_per_h
    return cost_columns(usd_per_h, answered / seconds if seconds > 0 else 0.0)


def cost_columns(usd_per_h: float | None, answers_per_s: float) -> dict[str, float | None]:
    """Return both columns for a rate of answers; none without a price."""
    if usd_per_h is None:
        return {}
    each = per_thousand(usd_per_h, answers_per_s)
    return {
        "usd_per_h": round(usd_per_h, 6),
        "usd_per_1000_answers": None if each is None else round(each, 9),
    }
