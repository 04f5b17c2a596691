"""A worker's items on their way: late, rerouted and ended ones."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from operators.serving.outbox import Onward
from operators.serving.worker_rules import UNSTEERED, WorkerRules
from schemas.effects import Send
from schemas.enumerations import ReasonCode
from schemas.pipeline import Pipeline, Policy
from schemas.records import DROPPED, Hop, Item, Lease, Route, SessionPlan, SessionStage, Settings
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


def sends(dropping: str, *children: Item) -> list[tuple[str, int, Item]]:
    """Return topic, slot and item of each send."""
    effects = rules(dropping).onward([(WORK, "read", c) for c in children], 0.2)
    found = []
    for effect in effects:
        assert isinstance(effect, Send)
        found += [(effect.topic, effect.slot, item) for item in effect.record.items]  # type: ignore[union-attr]
    return found


def test_rules_without_rerouting_send_by_turn() -> None:
    for rule in ("none", "deadline", "last-task", "per-task"):
        child = a_child(0.24)
        assert sends(rule, child) == [("work.read", 0, child)]


def test_a_late_item_takes_the_faster_worker_and_its_hop_says_why() -> None:
    late = a_child(0.06)  # 18 ms over its budget of 42
    marked = structs.replace(late, path=(
        located(0.06, rerouted="slot 1 instead of 0: 18 ms over the budget of its task"),
    ))  # fmt: skip
    assert sends("reroute-paper", late) == [("work.read", 1, marked)]
    # There is enough time until the deadline: of 190 ms the worker in turn takes 82 with queues.
    assert sends("reroute", late) == [("work.read", 0, late)]


def test_an_item_that_nobody_can_save_ends_with_the_reason_and_its_siblings_go_on() -> None:
    late, early = a_child(0.09), a_child(0.03, 1)
    reason = (
        "locate/v exceeded its budget by 48 ms, and no worker of 'read' with free "
        "capacity can make up for it; 160 ms were left"
    )
    ended = Item(branch=(0, 0), credit=5, path=late.path, end=an_end(DROPPED, "locate", reason))
    assert sends("reroute-paper", late, early) == [
        ("outputs", 0, ended), ("work.read", 0, early),
    ]  # fmt: skip


def test_time_is_counted_from_the_hop_before() -> None:
    first = a_hop(task="a", finished_s=0.1)
    item = an_item(path=(first, located(0.13)))
    assert sends("reroute-paper", item) == [("work.read", 0, item)]


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


# ---------------------------------------------------------------------- an inner task

# Of first > mid > end. The worker m has slot 1 of mid: 20 ms a batch, so a budget of 40 and one hop
# of 1. The fastest worker of end takes 20 ms, and two hops lie behind mid.
INNER = a_lease("m", "mid", slots=(1,))
INNER_LEASES = [
    INNER, a_lease("n", "mid", slots=(0,)), a_lease("o", "mid", slots=(2,), open_slot=-1),
    a_lease("p", "end", slots=(0,)), a_lease("q", "end", variant="w", slots=(1,)),
]  # fmt: skip
INNER_ROUTES = (
    Route("first", 1, 1.0, "", 0.0, 0.5),
    Route("mid", 0, 0.5, "", 0.0, 0.3),
    Route("mid", 1, 0.5, "", 0.0, 0.02),
    Route("end", 0, 1.0, "", 0.0, 0.04),
    Route("end", 1, 0.0, "", 40.0, 0.02),
)
# 10 ms over its budget, as it entered mid at 50 ms.
LATE_CHILD = an_item(
    branch=(0, 0), path=(a_hop(task="first", finished_s=0.05), a_hop(task="mid", finished_s=0.101))
)


def inner(
    dropping: str,
    lease: Lease = INNER,
    routes: tuple[Route, ...] = INNER_ROUTES,
    policy: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    **changes: Any,
) -> WorkerRules:
    shape = {"first": ["mid"], "mid": ["end"], "end": []}
    policies = (Policy(name="static", dropping=dropping, **(policy or {})),)
    pipeline = a_pipeline(shape, policies=policies, comm_s=0.001, **changes)
    settings = Settings(policy="static", slo_s=0.25)
    made = a_plan(INNER_LEASES, 7, routes=routes, settings=settings, **(plan or {}))
    return WorkerRules(made, pipeline, lease, lambda v, n: 9.0, 0.101)


def slots_of(steers: WorkerRules, *pieces: Onward, now: float = 0.101) -> list[tuple[str, int]]:
    """Return the topic and slot of each piece, sent on its own."""
    sends = [each for piece in pieces for each in steers.onward([piece], now)]
    return [(each.topic, each.slot) for each in sends if isinstance(each, Send)]


def test_the_time_of_an_inner_task_counts_from_the_end_of_the_last_hop() -> None:
    steers = inner("per-task", policy={"batching": "patient"})
    item = LATE_CHILD
    assert steers.overrun_s(WORK, item, 0.2) == pytest.approx(0.2 - (0.101 + 0.041))
    assert steers.begin_s(1, 4, (WORK, item, 0.0), 0.02) == pytest.approx(0.101 + 0.041 - 0.02)
    # 22 ms before the deadline end and its two hops must begin.
    slack_s = [steers.slack_s(WORK, item, budget_s, 0.1) for budget_s in (0.05, 0.5)]
    assert slack_s == pytest.approx([0.101 + 0.001 + 0.05 - 0.1, 0.25 - 0.022 - 0.1])


def test_at_a_last_task_an_item_may_end_at_its_deadline() -> None:
    last = inner("reroute", a_lease("p", "end", slots=(0,)))
    assert last.overrun_s(WORK, an_item(), 0.25) == 0.0
    assert inner("reroute").overrun_s(WORK, an_item(), 0.25) == pytest.approx(0.022)


def test_the_reason_of_a_drop_counts_the_time_seen_to_egress() -> None:
    steers = inner("reroute", plan={"to_egress_s": {"mid": 0.12}})
    reason = "mid/v would finish 100 ms too late for the remaining tasks"
    assert steers.why("mid/v", WORK, an_item(), 0.25).text == reason  # it ends at its deadline


def test_a_worker_holds_what_it_serves_within_the_longest_slo_of_a_class() -> None:
    assert inner("none").most == 4 * 0.2 / 0.02
    assert inner("none", slo_classes={"gold": 0.1, "slack": 1.0}).most == 4 * 1.0 / 0.02


def test_a_late_item_leaves_its_turn_by_its_last_hop_and_only_that_hop_says_so() -> None:
    (send,) = inner("reroute-paper").onward([(WORK, "end", LATE_CHILD)], 0.101)
    mark = "slot 1 instead of 0: 10 ms over the budget of its task"
    first, last = LATE_CHILD.path
    assert isinstance(send, Send)
    assert send.slot == 1
    assert send.record.items[0].path == (first, structs.replace(last, rerouted=mark))  # type: ignore[union-attr]


def test_an_item_that_cannot_be_saved_was_late_at_its_last_hop() -> None:
    too_late = an_item(path=(LATE_CHILD.path[0], a_hop(task="mid", finished_s=0.2)))
    (send,) = inner("reroute-paper").onward([(WORK, "end", too_late)], 0.2)
    assert isinstance(send, Send)
    end = send.record.items[0].end  # type: ignore[union-attr]
    assert end is not None
    assert (send.topic, end.task) == ("outputs", "mid")
    assert end.reason.startswith("mid/v exceeded its budget by 109 ms")


def test_the_senders_of_a_task_share_the_spare_capacity_and_a_new_plan_keeps_what_is_used() -> None:
    """10 items of spare capacity in an SLO, for two workers of mid with an open slot."""
    steers = inner("reroute-paper")
    late = [(WORK, "end", LATE_CHILD)] * 12
    assert slots_of(steers, *late).count(("work.end", 1)) == 5
    following = inner("reroute-paper")
    following.follow(steers, 0.101)
    assert slots_of(following, *late).count(("work.end", 1)) == 0
    first = inner("reroute-paper")
    first.follow(WorkerRules(UNSTEERED, a_pipeline(), None, lambda v, n: 0.0, 0.0), 0.101)
    assert slots_of(first, *late).count(("work.end", 1)) == 5


@pytest.mark.parametrize("dropping", ["none", "reroute-paper"])
def test_a_new_plan_continues_the_turns(dropping: str) -> None:
    both = (*INNER_ROUTES[:3], Route("end", 0, 0.5), Route("end", 1, 0.5))
    early = (WORK, "end", an_item(path=(a_hop(task="mid", finished_s=0.01),)))
    before, after = inner(dropping, routes=both), inner(dropping, routes=both)
    assert slots_of(before, early) == [("work.end", 0)]
    after.follow(before, 0.1)
    assert slots_of(after, early) == [("work.end", 1)]


def test_only_an_item_that_goes_by_turn_is_rerouted() -> None:
    late = (WORK, "end", LATE_CHILD)
    stage = SessionStage(task="end", setting="end/v", tier="", device="q", slot=0, quarters=4)
    planned = SessionPlan(session="a", number=1, slo_s=1.0, stages=(stage,))
    of_session = (structs.replace(WORK, session=planned), "end", LATE_CHILD)
    assert slots_of(inner("reroute-paper"), late, of_session) == [("work.end", 1), ("work.end", 0)]
    unserved = inner("reroute-paper", routes=INNER_ROUTES[:3])
    assert slots_of(unserved, late) == [("outputs", 0)]
    static = Policy(name="static", dropping="reroute-paper")
    shape = {"first": ["mid"], "mid": ["end"], "end": []}
    pipeline = a_pipeline(shape, policies=(static, Policy(name="mine", kind="kairos")))
    *tasks, end = pipeline.tasks
    pipeline = replace(pipeline, tasks=(*tasks, replace(end, dispatch="mine")))
    plan = a_plan(INNER_LEASES, 7, routes=INNER_ROUTES)
    assert slots_of(WorkerRules(plan, pipeline, INNER, lambda v, n: 9.0, 0.0), late) == [
        ("waiting.end", 0)
    ]
