"""Render a search as JSON and as text."""

from typing import Any

import numpy as np

from control.policies.compass.search.pricing import Priced
from control.policies.compass.search.search_step import cheapest_first
from control.problem.sample_sets import Truth
from control.problem.session_space import SessionSpace
from control.problem.space import Space
from headrace.config.session_sections import space_counts
from headrace.planning.session_search import Found, Step

SHOWN = 8  # plans
JUDGED = {
    Truth.WORKLOAD: "accuracy",
    Truth.REFERENCE: "agreement with the reference",
    Truth.FEEDBACK: "accuracy by labels",
}


def as_json(found: Found) -> dict[str, Any]:
    """Return the object that ``headrace search --json`` prints."""
    space = found.sessions.space
    return {
        "session": found.asked.session,
        "space": space_counts(space),
        "slo": {
            "accuracy": found.slo.accuracy,
            "latency_ms": found.slo.latency_s * 1e3,
            "usd_per_h": found.slo.usd_per_h if np.isfinite(found.slo.usd_per_h) else None,
        },
        "judged_by": str(found.sessions.truth),
        "stopped": found.stopped,
        "first": _first(found),
        "steps": [_step(space, number, step) for number, step in enumerate(found.steps, 1)],
        "plans": [_plan(found.sessions, plan) for plan in cheapest_first(found.search.plans)],
        "nearest": _nearest(found),
        "spent": {"device_seconds": found.device_s, "usd": found.usd},
    }


def _first(found: Found) -> dict[str, Any] | None:
    if found.first is None:
        return None
    seconds, steps = found.first
    proposal = found.steps[steps - 1].proposal
    space = found.sessions.space
    return {
        "seconds": seconds,
        "steps": steps,
        "placement": space.placed(proposal.placement),
        "configuration": space.named(proposal.configuration),
    }


def _step(space: Space, number: int, step: Step) -> dict[str, Any]:
    return {
        "n": number,
        "from": step.proposal.origin,
        "configuration": space.named(step.proposal.configuration),
        "placement": space.placed(step.proposal.placement),
        "utility": step.proposal.utility,
        "samples": step.tested.samples,
        "cached": list(step.cached),
        "accuracy": step.tested.estimate.mean,
        "confidence": step.tested.confidence,
        "verdict": str(step.tested.verdict),
        "compliant": step.compliant,
        "error": step.error,
        "seconds": {"propose": step.propose_s, "profile": step.profile_s, "wait": step.wait_s},
    }


def _plan(sessions: SessionSpace, plan: Priced) -> dict[str, Any]:
    space = sessions.space
    names = [stage.name for stage in space.stages]
    return {
        "configuration": space.named(plan.configuration),
        "settings": {name: sessions.setting(name, plan.configuration) for name in names},
        "placement": space.placed(plan.placement),
        "shares": {n: q / 4 for n, q in zip(names, plan.shares, strict=True) if q},
        "latency_ms": plan.latency_s * 1e3,
        "accuracy": plan.accuracy,
        "accuracy_low": plan.accuracy_low,
        "usd_per_h": plan.usd_per_h,
        "demand": {tier: quarters / 4 for tier, quarters in plan.demand},
    }


def _nearest(found: Found) -> dict[str, Any] | None:
    """Return the configuration closest to compliance if no plan complies, else None."""
    nearest = found.search.nearest
    if found.search.plans or nearest is None:
        return None
    return {
        "configuration": found.sessions.space.named(nearest.configuration),
        "accuracy": nearest.accuracy,
        "latency_ms": nearest.latency_s * 1e3,
        "usd_per_h": nearest.usd_per_h,
    }


def as_text(found: Found) -> str:
    """Return the search as text: its steps, the first compliant plan, the cheapest plans."""
    space = found.sessions.space
    lines = [
        f"{space.configuration_count:,} configurations, {space.plans:,} query plans; "
        f"{JUDGED[found.sessions.truth]} {found.slo.accuracy:g}, {found.slo.latency_s * 1e3:g} ms",
        *(_step_line(found, number, step) for number, step in enumerate(found.steps, 1)),
        _ended(found),
    ]
    for plan in cheapest_first(found.search.plans)[:SHOWN]:
        placed = ", ".join(
            f"{name} on {tier}" for name, tier in space.placed(plan.placement).items()
        )
        lines.append(
            f"  {plan.usd_per_h:7.3f} $/h  {plan.latency_s * 1e3:6.1f} ms  "
            f"{100 * plan.accuracy:5.1f} %  {placed}; "
            + ", ".join(settings(found, plan.configuration))
        )
    return "\n".join(lines)


def progress_note(found: Found) -> str:
    """Return the findings so far of a running search."""
    count, best = len(found.steps), found.search.best
    profiled = f"{count} configuration{'' if count == 1 else 's'}"
    if best is None:
        return f"{profiled}, no plan yet"
    return f"{profiled}, {len(found.search.plans)} plans, the cheapest for {best.usd_per_h:.3f} $/h"


def settings(found: Found, configuration: int) -> list[str]:
    """Return the setting of every task in a configuration."""
    sessions = found.sessions
    return [sessions.setting(stage.name, configuration) for stage in sessions.space.stages]


def nearest_text(found: Found) -> str:
    """Return how far the nearest configuration is from the objectives, as the end of a sentence."""
    nearest = found.search.nearest
    if nearest is None:
        return "; nothing was profiled"
    cost = "" if nearest.usd_per_h is None else f" for {nearest.usd_per_h:.3f} $/h"
    return (
        f"; the nearest configuration: {nearest.accuracy_text(found.slo.accuracy)} at "
        f"{nearest.latency_s * 1e3:.1f} ms{cost}"
    )


def _step_line(found: Found, number: int, step: Step) -> str:
    configuration = ", ".join(settings(found, step.proposal.configuration))
    return (
        f"  {number:3} {step.proposal.origin:9} {step.tested.samples:4} samples  "
        f"{100 * step.tested.estimate.mean:5.1f} %  {step.tested.verdict:8}  "
        f"{'complies' if step.compliant else '        '}  {configuration}"
        + (f"; failed: {step.error}" if step.error else "")
    )


def _ended(found: Found) -> str:
    total = f"{len(found.steps)} steps, {found.device_s:.2f} device seconds, {found.usd:.4f} $"
    if found.first is None:
        return f"no compliant plan ({found.stopped}; {total}){nearest_text(found)}"
    seconds, steps = found.first
    return f"first compliant plan after {seconds:.2f} s, {steps} steps; {found.stopped}; {total}"
