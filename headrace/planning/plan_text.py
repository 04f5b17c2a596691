"""Render a plan as text: devices, load, paths, binding constraint, effect of small changes."""

from dataclasses import replace

from control.checks.allocation_check import device_rate, items_per_s
from control.policies.solvers import solve
from control.problem.candidates import budgets_s
from control.problem.problem import Allocation, PathShare, Problem, Replicas
from headrace.cells import columns, percent
from headrace.config.cluster_cost import cost_text
from headrace.planning.dry_run import Planned, by_product
from profiles.path_accuracy import gap_text, path_gap
from schemas.variant_id import variant_id

SHOWN = 12  # paths


def plan_text(planned: Planned) -> str:
    """Return the plan of one demand as text."""
    plan, problem = planned.allocation, planned.problem
    if problem.profile is None:
        return "\n".join([*_head(plan, problem), *_cost(planned), "", *_unprofiled(plan)])
    tightest = replace(problem, slo_s=plan.slo_s or problem.slo_s)
    return "\n".join(
        [
            *_head(plan, problem),
            *_cost(planned),
            *_measured(planned),
            "",
            *_devices(plan, problem),
            "",
            *_paths(plan, tightest),
            *_binding(plan, problem),
            *(_changes(plan, problem) if plan.mode else ()),
            _solver(plan),
        ]
    )


def _head(plan: Allocation, problem: Problem) -> list[str]:
    there = len(problem.devices)
    lines = [
        f"{problem.pipeline.name} at {problem.demand_qps:g} queries/s, SLO "
        f"{problem.slo_s * 1e3:g} ms{_tightest(plan, problem)}, policy {problem.policy.name}"
        f"{': ' if plan.mode else ''}{plan.mode}",
        f"  {plan.devices_used} of {there} devices, accuracy {percent(plan.accuracy, 3)}",
    ]
    if plan.served_share < 1:
        lines.append(f"  serves {percent(plan.served_share, 3)} of the queries")
    return lines


def _tightest(plan: Allocation, problem: Problem) -> str:
    """Return the SLO classes whose SLO the plan keeps, where it is tighter than the pipeline's."""
    names = [name for name, slo_s in problem.classes.items() if slo_s == plan.slo_s]
    return f" ({', '.join(names)}: {plan.slo_s * 1e3:g} ms)" if names else ""


def _cost(planned: Planned) -> list[str]:
    text = cost_text(planned.usd_per_h, planned.answers_qps)
    return [f"  costs {text}"] if text else []


def _measured(planned: Planned) -> list[str]:
    """Compare the measured accuracy of paths with the product of their variants'."""
    product, profile = by_product(planned), planned.problem.profile
    gap = path_gap(profile) if profile else None
    if product is None or gap is None:
        return []
    return [
        f"  from accuracies measured per path; from products of variants: {percent(product, 3)}",
        f"  ({gap_text(gap)})",
    ]


def _unprofiled(plan: Allocation) -> list[str]:
    """List the replicas by variant, without the figures that a profile has."""
    rows = [(each.key, str(each.count), str(each.batch)) for each in plan.replicas]
    table = columns([("variant", "devices", "batch"), *rows], indent="  ")
    unmet = [] if plan.feasible else [f"cannot be met: {plan.binding}"]
    told = "without a profile, loads and latencies are unknown: run `headrace profile`"
    return [*table.split("\n"), "", *unmet, told]


def _devices(plan: Allocation, problem: Problem) -> list[str]:
    """List the replicas by variant, each with its load: arriving items over capacity."""
    arriving = items_per_s(plan, problem)
    took = f"{problem.policy.latency} ms/batch"
    rows = [("variant", "devices", "batch", "load", "items/s", took)]
    for each in plan.replicas:
        items = arriving.get((each.key, each.device), 0.0)
        able = each.count * device_rate(problem, each)
        rows.append(
            (
                each.key + (f" on {each.device}" if each.device else ""),
                str(each.count),
                str(each.batch),
                f"{100 * items / able:.1f} %",
                f"{items:.1f}",
                f"{_batch_s(problem, each) * 1e3:.1f}",
            )
        )
    return columns(rows, indent="  ").split("\n")


def _batch_s(problem: Problem, each: Replicas) -> float:
    device = next((d for d in problem.devices if each.may_run_on(d)), "")
    assert problem.profile is not None
    return problem.profile.latency_s(
        each.task, each.variant, device, each.batch, problem.policy.latency
    )


def _paths(plan: Allocation, problem: Problem) -> list[str]:
    """List the paths by share, each with its compute time and latency budget."""
    if not plan.shares:
        served = (
            "the policy defines no paths" if plan.feasible else "nothing can be answered in time"
        )
        return [f"{served}, so no paths are shown"]
    batch_s = {(r.key, r.device): _batch_s(problem, r) for r in plan.replicas}
    budgets = budgets_s(problem)
    rows = [("path", "share", "compute", "budget")]
    ordered = sorted(plan.shares, key=lambda each: -each.share)
    for each in ordered[:SHOWN]:
        took = sum(batch_s[host] for host in _hosts(each))
        budget = budgets[variant_id(each.path[-1]).task]
        rows.append(
            (
                " > ".join(each.path),
                percent(each.share, 3),
                f"{took * 1e3:.1f} ms",
                f"{budget * 1e3:.1f} ms",
            )
        )
    more = len(ordered) - SHOWN
    return [columns(rows, indent="  "), *([f"  and {more} more"] if more > 0 else [])]


def _hosts(share: PathShare) -> list[tuple[str, str]]:
    return list(zip(share.path, share.devices or ("",) * len(share.path), strict=True))


def _binding(plan: Allocation, problem: Problem) -> list[str]:
    if not plan.feasible:
        return ["", f"cannot be met: {plan.binding}"]
    arriving = items_per_s(plan, problem)
    loads = {
        each.key: arriving.get((each.key, each.device), 0.0)
        / (each.count * device_rate(problem, each))
        for each in plan.replicas
    }
    full = [key for key, load in loads.items() if load > 0.999]
    if plan.mode == "accuracy":
        busy = f" ({', '.join(full)} at full load)" if full else ""
        return ["", f"binding constraint: number of devices{busy}"]
    if not loads:
        return []
    key = max(loads, key=lambda each: loads[each])
    if loads[key] > 1:
        return ["", f"demand exceeds the capacity of {key}: load {100 * loads[key]:.1f} %"]
    return ["", f"binding constraint: none; highest load: {key} at {100 * loads[key]:.1f} %"]


def _again(problem: Problem) -> Allocation:
    found: Allocation = solve(problem.policy.kind, problem)
    return found


def _changes(plan: Allocation, problem: Problem) -> list[str]:
    """Describe the effect of one more device and of 10 % more demand."""
    kind = max(problem.devices, key=problem.devices.count)
    one_more = replace(problem, devices=(*problem.devices, kind))
    grown = replace(problem, demand_qps=problem.demand_qps * 1.1)
    return [
        f"with one more device: {_difference(plan, _again(one_more))}",
        f"with 10 % more demand: {_difference(plan, _again(grown))}",
    ]


def _difference(now: Allocation, then: Allocation) -> str:
    """Describe how plan ``then`` differs from plan ``now``."""
    if then.mode == "best-effort":
        if now.served_share == then.served_share:
            return "still cannot be met" if now.mode == then.mode else "cannot be met"
        served = f"serves {percent(then.served_share, 3)} of the queries"
        return f"cannot be met; {served}"
    found = [] if now.mode == then.mode else [f"{then.mode} instead of {now.mode}"]
    if now.devices_used != then.devices_used:
        found.append(f"{then.devices_used} devices instead of {now.devices_used}")
    if now.accuracy is not None and then.accuracy is not None:
        points = 100 * (then.accuracy - now.accuracy)
        if abs(points) >= 0.0005:
            found.append(f"accuracy {points:+.3f} points")
    return ", ".join(found) or "nothing"


def _solver(plan: Allocation) -> str:
    if plan.solved is None:
        return ""
    found = plan.solved.gap
    gap = "not proven optimal" if found is None else f"gap at most {found:.1g}"
    return f"solved by {plan.solved.solver} in {plan.solved.cpu_s * 1e3:.0f} ms of CPU, {gap}"
