"""A worker's items on their way: late, rerouted and ended ones."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from operators.serving.worker_rules import WorkerRules
from schemas.effects import Send
from schemas.enumerations import ReasonCode
from schemas.pipeline import Pipeline, Policy
from schemas.records import DROPPED, Hop, Item, Route, Settings
from tests.builders import a_hop, a_lease, a_pipeline, a_plan, a_work, an_end, an_item

# locate/v takes 20 ms of a batch, so its budget is 40 ms and two hops of 1.
ROUTES = (
    Route("locate", 0, 1.0, "", 0.0, 0.02),
    Route("read", 0, 1.0, "", 0.0, 0.04),
    Route("read", 1, 0.0, "", 10.0, 0.02),
)
LEASE = a_lease(task="locate")
LEASES = [LEASE, a_lease("r", slots=(0,)), a_lease("s", variant="w", slots=(1,))]


def a_pipeline_that(dropping: str, **changes: Any) -> Pipeline:
    policy = Policy(name="static", dropping=dropping, **changes)
    return a_pipeline({"locate": ["read"], "read": []}, policies=(policy,), comm_s=0.001)


def rules(dropping: str, **changes: Any) -> WorkerRules:
    plan = a_plan(LEASES, 7, routes=ROUTES, settings=Settings(policy="static", slo_s=0.25))
    return WorkerRules(plan, a_pipeline_that(dropping, **changes), LEASE, lambda v, n: 9.0, 0.0)


def located(finished_s: float, **changes: Any) -> Hop:
    return a_hop(task="locate", finished_s=finished_s, **changes)


def a_child(finished_s: float, ordinal: int = 0) -> Item:
    return an_item(branch=(0, ordinal), credit=5, path=(located(finished_s),))


WORK = a_work(1, task="locate", deadline_s=0.25)


def sends(dropping: str, *children: Item) -> tuple[list[tuple[str, int, Item]], dict[str, int]]:
    """Return topic, slot and item of each send, and the counts."""
    effects, counts = rules(dropping).onward([(WORK, "read", c) for c in children], 0.2)
    found = []
    for effect in effects:
        assert isinstance(effect, Send)
        found += [(effect.topic, effect.slot, item) for item in effect.record.items]  # type: ignore[union-attr]
    return found, counts


def test_rules_without_rerouting_send_by_turn() -> None:
    for rule in ("none", "deadline", "last-task", "per-task"):
        child = a_child(0.24)
        assert sends(rule, child) == ([("work.read", 0, child)], {})


def test_a_late_item_takes_the_faster_worker_and_its_hop_says_why() -> None:
    late = a_child(0.06)  # 18 ms over its budget of 42
    marked = structs.replace(late, path=(
        located(0.06, rerouted="slot 1 instead of 0: 18 ms over the budget of its task"),
    ))  # fmt: skip
    assert sends("reroute-paper", late) == ([("work.read", 1, marked)], {"rerouted": 1})
    # There is enough time until the deadline: of 190 ms the worker in turn takes 82 with queues.
    assert sends("reroute", late) == ([("work.read", 0, late)], {})


def test_an_item_that_nobody_can_save_ends_with_the_reason_and_its_siblings_go_on() -> None:
    late, early = a_child(0.09), a_child(0.03, 1)
    reason = (
        "locate/v exceeded its budget by 48 ms, and no worker of 'read' with free "
        "capacity can make up for it; 160 ms were left"
    )
    ended = Item(branch=(0, 0), credit=5, path=late.path, end=an_end(DROPPED, "locate", reason))
    assert sends("reroute-paper", late, early) == (
        [("outputs", 0, ended), ("work.read", 0, early)], {"behind": 1},
    )  # fmt: skip


def test_time_is_counted_from_the_hop_before() -> None:
    first = a_hop(task="a", finished_s=0.1)
    item = an_item(path=(first, located(0.13)))
    assert sends("reroute-paper", item) == ([("work.read", 0, item)], {})


@pytest.mark.parametrize(
    ("rule", "ends_s", "short_s", "reason"),
    [
        ("none", 9.0, float("-inf"), ""),
        ("deadline", 0.26, 0.01, "locate/v would finish 10 ms after the deadline"),
        ("per-task", 0.05, 0.008, "locate/v would exceed the budget of its task by 8 ms"),
        # The fastest reader takes 20 ms, followed by two hops.
        ("reroute", 0.24, 0.012, "locate/v would finish 12 ms too late for the remaining tasks"),
    ],
)
def test_items_dropped_before_a_batch_get_a_reason(
    rule: str, ends_s: float, short_s: float, reason: str
) -> None:
    steers, item = rules(rule), an_item()
    assert steers.overrun_s(WORK, item, ends_s) == pytest.approx(short_s)
    if reason:
        assert steers.why("locate/v", WORK, item, ends_s).text == reason


@pytest.mark.parametrize(("late", "begins"), [("drop", False), ("serve", True)])
@pytest.mark.parametrize("inner", [False, True], ids=["root", "inner"])
def test_a_late_item_is_served_where_the_policy_that_dispatches_it_serves_late_ones(
    late: str, begins: bool, inner: bool
) -> None:
    """The worker used to drop what the dispatcher had sent."""
    mine = Policy(name="mine", kind="kairos", options={"late": late})
    static = Policy(name="static")
    pipeline = a_pipeline({"locate": ["read"], "read": []}, policies=(static, mine))
    root, read = pipeline.tasks
    pipeline = replace(pipeline, tasks=(root, replace(read, dispatch="mine" if inner else "")))
    settings = Settings(policy="static" if inner else "mine", slo_s=0.25)
    lease = a_lease(task="read" if inner else "locate")
    plan = a_plan([lease], 7, settings=settings)
    steers = WorkerRules(plan, pipeline, lease, lambda v, n: 0.02, 0.0)
    assert (steers.overrun_s(WORK, an_item(), 0.3) <= 0) == begins


def test_a_bare_budget_is_the_batch_alone() -> None:
    bare = rules("per-task", budget="bare")
    assert bare.overrun_s(WORK, an_item(), 0.05) == pytest.approx(0.03)


def test_worker_uses_its_own_latency_if_the_plan_has_none() -> None:
    plan = a_plan(LEASES, settings=Settings(policy="static", slo_s=0.25))
    pipeline = a_pipeline_that("per-task")
    steers = WorkerRules(plan, pipeline, LEASE, lambda v, n: 0.002 * n, 0.0)
    assert steers.overrun_s(WORK, an_item(), 0.1) == pytest.approx(0.1 - 2 * 0.008 - 0.002)


@pytest.mark.parametrize(("planned_s", "budget_s"), [(0.0, 0.042), (0.1, 0.105)])
def test_budgets_divide_the_slo_that_the_plan_is_made_for(
    planned_s: float, budget_s: float
) -> None:
    """A class of 100 ms is in the file and counts only in the second plan."""
    pipeline = replace(a_pipeline_that("per-task"), slo_classes={"gold": 0.1})
    settings = Settings(policy="static", slo_s=0.25)
    plan = a_plan(LEASES, 7, routes=ROUTES, settings=settings, planned_slo_s=planned_s)
    steers = WorkerRules(plan, pipeline, LEASE, lambda v, n: 9.0, 0.0)
    assert steers.overrun_s(WORK, an_item(), 0.25) == pytest.approx(0.25 - budget_s)


@pytest.mark.parametrize(("dropping", "free_s"), [("deadline", 0.25), ("reroute", 0.228)])
def test_where_more_items_wait_than_a_batch_takes_the_seen_time_to_egress_counts(
    dropping: str, free_s: float
) -> None:
    """The plan's batch takes 20 of the 120 ms that were observed."""
    settings = Settings(policy="static", slo_s=0.25)
    plan = a_plan(LEASES, 7, routes=ROUTES, settings=settings, to_egress_s={"locate": 0.12})
    steers = WorkerRules(plan, a_pipeline_that(dropping), LEASE, lambda v, n: 9.0, 0.0)
    item = an_item()
    assert steers.overrun_s(WORK, item, 0.2) == pytest.approx(0.2 - free_s)
    assert steers.overrun_s(WORK, item, 0.2, crowded=True) == pytest.approx(0.2 - 0.15)
    assert steers.why("locate/v", WORK, item, 0.2).code == ReasonCode.NO_WAY_ON
