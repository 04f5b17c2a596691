"""Render a search as an HTML page: the Pareto-optimal plans found so far, and every step."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import inf, isfinite

from control.policies.compass.search.pricing import Priced
from control.policies.compass.search.search_step import cheapest_first
from headrace.html.charts import ChartLabels, ChartLine, Spot, line_chart, spot_chart
from headrace.html.page import css, number, page, section, setting, table, text
from headrace.planning.search_report import JUDGED, nearest_text, settings
from headrace.planning.session_search import Found, Step


def search_page(file: str, found: Found) -> str:
    """Return the page of a search over the pipeline file of that name, ended or not."""
    plans = cheapest_first(found.search.plans)
    body = [_plans(found, plans), _cost(found), _steps(found)]
    return page(f"{file}: plans of session {found.asked.session}", _lead(found), body, setting())


def _lead(found: Found) -> Iterator[str]:
    slo, space = found.slo, found.sessions.space
    cost = f", {slo.usd_per_h:g} $/h at most" if isfinite(slo.usd_per_h) else ""
    yield (
        f"Objectives: {JUDGED[found.sessions.truth]} of {slo.accuracy:g}, "
        f"{slo.latency_s * 1e3:g} ms{cost}."
    )
    left_s = max(0.0, found.deadline_s - found.elapsed_s)
    state = (
        f"The search stopped at its {found.stopped}"
        if found.stopped
        else f"The search continues for {left_s:.1f} s at most"
    )
    yield (
        f"{state}: {len(found.steps)} of {space.configuration_count:,} configurations profiled in "
        f"{found.elapsed_s:.2f} s, {found.device_s:.2f} device seconds, {found.usd:.4f} $."
    )


def _plans(found: Found, plans: Sequence[Priced]) -> str:
    if not plans:
        return section("Plans", f"No plan complies yet{nearest_text(found)}.", "")
    spots = [
        Spot(
            str(at), css(0), plan.usd_per_h, 100 * plan.accuracy,
            below_y=100 * (plan.accuracy - plan.accuracy_low),
        )
        for at, plan in enumerate(plans, 1)
    ]  # fmt: skip
    labels = ChartLabels(
        x="$ an hour", y="accuracy, %", about="Cost against accuracy of the plans found"
    )
    about = (
        "Compliant plans of which none is better in accuracy, cost and demand at once. Up and to "
        "the left is better; bars reach down to the lower bound of the accuracy at 99 %."
    )
    heads = ("plan", "settings and tiers", "$/h", "accuracy, %", "latency, ms", "GPUs")
    rows = [_plan(found, at, plan) for at, plan in enumerate(plans, 1)]
    chart = spot_chart(spots, labels, x_most=inf)
    return section("Plans", about, chart + table(heads, rows, texts=2))


def _plan(found: Found, at: int, plan: Priced) -> list[str]:
    tiers = found.sessions.space.placed(plan.placement)
    placed = [
        f"{name} on {tier}"
        for name, tier in zip(settings(found, plan.configuration), tiers.values(), strict=True)
    ]
    demand = ", ".join(f"{quarters / 4:g} {tier}" for tier, quarters in plan.demand)
    return [
        text(str(at)), text(", ".join(placed)), number(f"{plan.usd_per_h:.3f}"),
        number(f"{100 * plan.accuracy:.1f}"), number(f"{plan.latency_s * 1e3:.1f}"),
        text(demand or "none"),
    ]  # fmt: skip


def _cost(found: Found) -> str:
    """Draw the cost of the cheapest plan as it falls; nothing before the first one."""
    corners: list[tuple[float, float | None]] = []
    before: float | None = None
    for ended_s, step in zip(accumulate(map(_step_s, found.steps)), found.steps, strict=True):
        corners += [(ended_s, before), (ended_s, step.cheapest_usd)]
        before = step.cheapest_usd
    labels = ChartLabels(
        x="seconds of the search", y="$ an hour", about="Cost of the cheapest plan over time"
    )
    chart = line_chart([ChartLine("cheapest plan", css(0), corners)], labels)
    return section("Cost of the cheapest plan", "", chart)


def _step_s(step: Step) -> float:
    return step.propose_s + step.profile_s + step.wait_s


def _steps(found: Found) -> str:
    heads = ("step", "configuration", "proposed by", "verdict", "samples", "accuracy, %", "s")
    rows = [
        [
            text(str(at)),
            text(", ".join(settings(found, step.proposal.configuration))),
            text(step.proposal.origin),
            text(step.error or ("complies" if step.compliant else str(step.tested.verdict))),
            number(str(step.tested.samples)),
            number(f"{100 * step.tested.estimate.mean:.1f}"),
            number(f"{_step_s(step):.2f}"),
        ]
        for at, step in enumerate(found.steps, 1)
    ]
    return section("Configurations", "", table(heads, rows, texts=4))
