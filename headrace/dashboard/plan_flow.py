"""Compute how a plan shares the queries among tasks and variants, as the links of a Sankey diagram.

    flow(root) = 1
    flow(v)    = sum over senders s of flow(s -> task(v)) * share(s, v)
    flow(v -> child) = flow(v) * factor(v, child)

Flows are items per query. ``share`` is the sum over the routes to slots of v's workers; ``factor``
the fan-out that the control app has observed (1 until then).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.pipeline import Pipeline
from schemas.records import Lease, Plan, Route

QUERIES = ""  # the sender in front of the root task
Shares = dict[str, float]  # by variant key


def plan_flow(pipeline: Pipeline, plan: Plan | None) -> dict[str, list[dict[str, Any]]]:
    """Return ``nodes`` (name, kind "task" or "variant", items per query, workers) and ``links``
    (source, target, items per query, share of the source, part of its task's items: all that the
    task gets, for a link to a child all that the child gets); empty without a plan."""
    if plan is None:
        return {"nodes": [], "links": []}
    nodes: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    arriving: dict[str, Shares] = {pipeline.root.name: {QUERIES: 1.0}}
    factors = {(each.variant, each.child): each.mean for each in plan.factors}
    for task in pipeline.tasks:
        sent = arriving.get(task.name, {})
        items = sum(sent.values())
        nodes.append({"name": task.name, "kind": "task", "items": items, "workers": 0})
        for variant, part in _shared(plan, task.name, sent).items():
            nodes.append(_variant(plan, variant, part))
            links.append(_link(task.name, variant, part, items))
            for child in task.children:
                made = part * factors.get((variant, child), 1.0)
                arriving.setdefault(child, {})[variant] = made
                links.append(_link(variant, child, made, part))
    return {"nodes": nodes, "links": [_with_part(link, arriving) for link in links]}


def _shared(plan: Plan, task: str, sent: Mapping[str, float]) -> Shares:
    """Return the items that each variant of a task gets, in the order of the plan's leases."""
    by_slot = {each.open_slot: each for each in plan.leases if each.task == task}
    by_slot.pop(-1, None)
    found: Shares = {each.key: 0.0 for each in by_slot.values()}
    for sender, items in sent.items():
        for lease, share in _split(plan.routes, by_slot, task, sender):
            found[lease.key] += items * share
    return found


def _split(
    routes: Sequence[Route], by_slot: Mapping[int, Lease], task: str, sender: str
) -> list[tuple[Lease, float]]:
    """Return the leases that a sender's items go to; in equal parts where no route names them."""
    mine = [each for each in routes if each.task == task and each.slot in by_slot]
    chosen = [r for r in mine if r.source == sender] or [r for r in mine if r.source == QUERIES]
    if not chosen:
        return [(lease, 1 / len(by_slot)) for lease in by_slot.values()]
    return [(by_slot[route.slot], route.share) for route in chosen]


def _variant(plan: Plan, variant: str, items: float) -> dict[str, Any]:
    workers = sum(each.key == variant and each.open_slot >= 0 for each in plan.leases)
    return {"name": variant, "kind": "variant", "items": items, "workers": workers}


def _link(source: str, target: str, items: float, of: float) -> dict[str, Any]:
    share = items / of if of > 0 else 0.0
    return {"source": source, "target": target, "items": items, "share": share}


def _with_part(link: dict[str, Any], arriving: Mapping[str, Shares]) -> dict[str, Any]:
    task = link["target"] if link["target"] in arriving else link["source"]
    every = sum(arriving.get(task, {}).values())
    return {**link, "part": link["items"] / every if every > 0 else 0.0}
