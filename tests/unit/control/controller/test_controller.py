"""The controller: when it plans, what it publishes and how it answers commands."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from control.controller.command_desk import NO_WORKER
from control.controller.command_queue import COMMAND_VALID_S, KNOWN_IDS, CommandQueue
from control.controller.commands import ACTIONS
from control.controller.membership import LOADING_S
from control.problem.problem import Allocation, Replicas
from control.rollout.history import REMEMBERED_PLANS, ROUTES, History
from schemas.effects import (
    COMMANDS,
    PLANS,
    REPORTS,
    Arrived,
    Assign,
    Failed,
    Send,
    Solved,
    Wake,
    Woke,
)
from schemas.enumerations import PlanCause
from schemas.pipeline import Policy
from schemas.records import Command, CommandResult, Garbled, Plan, Record, Route, Settings
from tests.control_world import FakeWorker, World, a_pipeline, a_profile, an_ingress_report

VIT = Policy(name="accurate", replicas={"locate/net": 1, "read/vit": 2})
HUGE = Policy(name="huge", replicas={"locate/net": 65, "read/vit": 2})
SLOW = Policy(name="slow", options={"quick": False})  # its plans come from solves only


FILED = Settings(policy="static", slo_s=0.3, filed_policy="static", filed_slo_s=0.3)


def a_world(**more: object) -> World:
    return World(a_pipeline(policies=(VIT, HUGE, SLOW)), **more)  # type: ignore[arg-type]


def test_the_first_plan_comes_once_the_expected_workers_have_reported() -> None:
    world = a_world()
    world.start("w0", "w1")
    world.run(1.0)
    assert world.plans == []
    world.workers["w2"] = FakeWorker("w2")
    world.run(0.2)
    assert world.leases() == {
        "w0": ("locate", "net", (0,), 0),
        "w1": ("read", "forest", (0,), 0),
        "w2": ("read", "forest", (1,), 1),
    }
    assert (world.plan.epoch, world.plan.feasible) == (1, True)


def test_the_first_plan_does_not_wait_for_ever() -> None:
    world = a_world().start("w0", "w1")
    world.run(3.0)
    assert [(plan.epoch, plan.feasible) for plan in world.plans] == [(1, False)]
    assert "asks for 3 workers and 2 can be used" in world.plan.binding


def test_no_plan_is_published_while_nothing_changes() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.run(25.0)
    assert len(world.plans) == 1


def test_a_lost_workers_slot_is_adopted_before_any_solve() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.run(0.4)  # all workers have reported that they serve
    world.solving = False
    del world.workers["w2"]
    world.run(0.8)
    assert len(world.plans) == 1
    world.run(0.1)
    assert len(world.plans) == 2
    assert world.leases() == {
        "w0": ("locate", "net", (0,), 0),
        "w1": ("read", "forest", (0, 1), 0),
    }
    assert world.plan.reason == "lost w2; slots handed over"


def test_a_worker_that_loads_may_be_silent_for_longer() -> None:
    world = a_world().start("w0", "w1")
    world.run(0.5)
    world.workers["w2"] = FakeWorker("w2", incarnation=world.now, loads=True)
    world.run(0.5)
    assert "w2" in world.leases()
    silent = world.workers.pop("w2")
    world.run(LOADING_S - 1.0)
    assert "w2" in world.leases()
    world.run(2.0)
    assert "w2" not in world.leases()
    assert silent.name == "w2"


def test_a_worker_that_returns_takes_its_slot_back() -> None:
    world = a_world().start("w0", "w1", "w2")
    gone = world.workers.pop("w2")
    world.run(1.5)
    world.workers["w2"] = replace(gone, incarnation=world.now)
    world.run(0.4)
    assert world.leases()["w2"] == ("read", "forest", (1,), 1)
    assert world.leases()["w1"] == ("read", "forest", (0,), 0)


def test_a_worker_that_restarts_keeps_its_lease_and_gets_no_traffic_until_it_serves() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.run(1.0)
    world.workers["w2"] = FakeWorker("w2", incarnation=world.now, plan=world.plan, loads=True)
    world.run(2.0)
    both, one = world.plans[0].routes[1:], (Route("read", 0, 1.0),)
    assert [(plan.reason, plan.routes[1:]) for plan in world.plans[1:]] == [
        ("worker w2 has restarted", one)
    ]
    world.workers["w2"].loads = False
    world.run(1.0)
    assert [(plan.reason, plan.routes[1:]) for plan in world.plans[2:]] == [
        ("worker w2 serves read", both)
    ]
    assert {plan.leases for plan in world.plans} == {world.plan.leases}


def test_workers_that_begin_to_serve_have_one_plan_as_soon_as_none_loads() -> None:
    world = World(a_pipeline(read={"forest": 3}), expected=4).start("w0", "w1", "w2", "w3")
    world.run(1.0)
    for name in ("w2", "w3"):
        world.workers[name] = FakeWorker(name, incarnation=world.now, plan=world.plan, loads=True)
    world.run(1.0)
    made = len(world.plans)
    for name in ("w2", "w3"):
        assert len(world.plans) == made
        world.workers[name].loads = False
        world.arrive(world.workers[name].report(world.now), REPORTS)
    assert [plan.reason for plan in world.plans[made:]] == [
        "worker w2 serves read; worker w3 serves read"
    ]


def test_suspended_controller_does_not_count_workers_as_lost() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.now += 5.0
    world.tell(Woke())
    world.run(1.0)
    assert len(world.plans) == 1


def test_silence_of_all_workers_is_taken_for_a_broker_outage() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.run(1.0)
    workers, world.workers, world.ingress = world.workers, {}, False
    world.run(9.0)
    world.workers = {name: workers[name] for name in ("w0", "w1")}
    world.run(2.9)
    assert len(world.plans) == 1
    world.run(0.5)
    assert [plan.reason for plan in world.plans[1:2]] == ["lost w2; slots handed over"]


def test_workers_that_find_a_returned_broker_one_by_one_keep_their_leases() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.run(1.0)
    workers, world.workers, world.ingress = world.workers, {}, False
    world.run(5.0)
    world.ingress = True
    world.run(2.0)
    world.workers = workers
    world.run(3.0)
    assert len(world.plans) == 1


def test_brief_broker_outage_does_not_extend_the_worker_timeout() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.run(1.0)
    workers, world.workers, world.ingress = world.workers, {}, False
    world.run(0.6)
    world.workers, world.ingress = {name: workers[name] for name in ("w0", "w1")}, True
    world.run(1.2)
    assert [plan.reason for plan in world.plans[1:2]] == ["lost w2; slots handed over"]


def test_old_reports_are_ignored() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.workers["w3"] = FakeWorker("w3")
    late = world.workers.pop("w3").report(world.now - 2.5)
    world.arrive(late, REPORTS)
    assert len(world.plans) == 1


def test_plan_without_workers_is_published_and_the_first_to_return_reads_all_slots() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.run(0.3)
    world.workers.clear()
    world.run(1.2)
    assert world.plan.leases == ()
    assert not world.plan.feasible
    for name in ("w8", "w9"):
        world.workers[name] = FakeWorker(name)
    world.run(0.4)
    assert world.leases() == {
        "w8": ("locate", "net", (0,), 0),
        "w9": ("read", "forest", (0, 1), 0),
    }


def test_a_change_of_policy_swaps_variants_in_place() -> None:
    world = a_world().start("w0", "w1", "w2")
    result = world.command("apply-policy", policy="accurate")
    assert result == CommandResult(
        id="c1", pipeline="postcode", action="apply-policy", ok=True,
        message="policy 'accurate' is in force", epoch=2, finished_s=world.now,
    )  # fmt: skip
    assert world.leases() == {
        "w0": ("locate", "net", (0,), 0),
        "w1": ("read", "vit", (0,), 0),
        "w2": ("read", "vit", (1,), 1),
    }
    assert world.plan.settings == structs.replace(FILED, policy="accurate")


def test_a_drained_worker_gives_its_slots_up_only_when_it_is_empty() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.workers["w2"].queued = 3
    world.command("drain", target="w2")
    world.run(5.0)
    assert world.leases()["w2"] == ("read", "forest", (1,), -1)
    world.workers["w2"].queued = 0
    world.run(0.2)  # one report is not enough; a second one must confirm it
    assert "w2" in world.leases()
    world.run(0.6)
    assert world.leases() == {
        "w0": ("locate", "net", (0,), 0),
        "w1": ("read", "forest", (0, 1), 0),
    }
    world.command("restore", target="w2")
    assert world.leases()["w2"] == ("read", "forest", (1,), 1)


def test_a_worker_that_leaves_is_drained_and_soon_released() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.workers["w2"].queued, world.workers["w2"].leaves = 3, True
    world.run(0.5)
    assert world.leases()["w2"] == ("read", "forest", (1,), -1)
    assert "worker w2 is leaving" in world.plan.reason
    world.workers["w2"].queued = 0
    world.run(0.8)
    assert world.leases() == {
        "w0": ("locate", "net", (0,), 0),
        "w1": ("read", "forest", (0, 1), 0),
    }


def test_the_only_worker_of_a_task_leaves_when_another_has_taken_over() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.workers["w0"].leaves = True
    world.run(0.3)
    assert world.leases()["w0"] == ("locate", "net", (0,), 0)
    assert world.leases()["w2"] == ("read", "forest", (1,), -1)
    world.run(2.0)
    assert world.leases() == {
        "w1": ("read", "forest", (0, 1), 0),
        "w2": ("locate", "net", (0, 1), 1),
    }


def test_a_worker_drains_before_it_changes_its_task() -> None:
    pipeline = a_pipeline(
        policies=(Policy(name="wide", replicas={"locate/net": 2, "read/forest": 1}),)
    )
    world = World(pipeline).start("w0", "w1", "w2")
    world.command("apply-policy", policy="wide")
    assert world.leases()["w2"] == ("read", "forest", (1,), -1)
    world.run(1.6)
    assert world.leases() == {
        "w0": ("locate", "net", (0,), 0),
        "w1": ("read", "forest", (0, 1), 0),
        "w2": ("locate", "net", (1,), 1),
    }


def test_a_paused_pipeline_admits_nothing_and_keeps_its_routes() -> None:
    world = World(a_pipeline(), a_profile()).start("w0", "w1", "w2")
    routes = world.plan.routes
    assert world.plan.capacity_qps == 100.0
    world.command("pause")
    assert (world.plan.capacity_qps, world.plan.routes) == (0.0, routes)
    world.command("resume")
    assert world.plan.capacity_qps == 100.0


def test_a_plan_that_still_has_a_lost_worker_is_amended_without_traffic_for_it() -> None:
    # As if the plan that hands on the slot was refused and a pause follows.
    world = World(a_pipeline(), a_profile()).start("w0", "w1", "w2")
    world.run(0.4)
    world.solving = False
    before = world.plan
    lost = next(lease for lease in before.leases if lease.worker == "w2")
    del world.workers["w2"]
    world.run(0.9)
    assert world.plan.reason == "lost w2; slots handed over"
    amended = world.controller._state.amended(before, before.leases, (), world.now)
    assert amended.leases == before.leases
    assert (lost.task, lost.open_slot) not in {(x.task, x.slot) for x in amended.routes}


def test_a_pause_waits_for_no_solve_and_outlasts_the_one_in_flight() -> None:
    world = a_world(profile=a_profile(), solving=False).start("w0", "w1", "w2")
    world.finish_solves()
    leases = world.plan.leases
    world.command("apply-policy", policy="slow")  # its solve takes long
    assert len(world.solves) == 1
    result = world.command("pause")
    assert result is not None
    assert (result.ok, result.message, result.epoch) == (True, "ingress refuses queries", 2)
    assert (world.plan.capacity_qps, world.plan.leases) == (0.0, leases)
    assert PlanCause.COMMAND in world.plan.causes
    assert [each.action for each in world.results] == ["pause"]  # the other job still waits
    world.finish_solves()
    assert [each.action for each in world.results] == ["pause", "apply-policy"]
    assert (world.plan.settings.paused, world.plan.settings.policy) == (True, "slow")
    assert world.plan.capacity_qps == 0.0
    resumed = world.command("resume")
    assert resumed is not None
    assert resumed.ok
    assert world.plan.capacity_qps == 100.0
    world.run(3.0)  # steps and routes follow without it
    assert not world.plan.settings.paused


def test_a_pause_outlasts_a_command_that_fails() -> None:
    world = a_world(profile=a_profile(), solving=False).start("w0", "w1", "w2")
    world.finish_solves()
    world.command("apply-policy", policy="huge")
    world.command("pause")
    world.finish_solves()
    assert [(each.action, each.ok) for each in world.results] == [
        ("pause", True), ("apply-policy", False),
    ]  # fmt: skip
    world.command("replan")
    world.finish_solves()
    assert world.plan.settings.paused


def test_a_command_that_leads_to_no_plan_changes_nothing() -> None:
    world = a_world().start("w0", "w1", "w2")
    result = world.command("apply-policy", policy="huge")
    assert result is not None
    assert (result.ok, result.epoch) == (False, 1)
    assert "asks for 65 replicas of task 'locate', which has 64 slots" in result.message
    world.run(11.0)
    assert len(world.plans) == 1


def test_invalid_result_of_a_planner_is_rejected() -> None:
    world = a_world(solving=False).start("w0", "w1", "w2")
    world.finish_solves()
    world.command("apply-policy", policy="slow")
    unknown = Allocation((Replicas(task="locate", variant="ghost", batch=4, count=1),))
    world.tell(Solved(world.solves.pop().job, unknown))
    assert [(result.ok, result.epoch) for result in world.results] == [(False, 1)]
    assert "is to load 'locate/ghost', which its task" in world.results[0].message
    assert (len(world.plans), world.plan.settings.policy) == (1, "static")


def test_next_plan_states_the_previous_failure() -> None:
    world = a_world(solving=False).start("w0", "w1", "w2")
    world.tell(Failed(world.solves.pop().job, "the planner broke"))
    world.tell(Failed(99, "somebody else's"))
    world.tell(Solved(99, Allocation(())))
    assert world.plans == []
    world.solving = True
    world.run(11.0)
    assert world.plan.reason == "first plan; the previous solve failed: the planner broke"


def test_a_failure_is_forgotten_once_a_solve_confirms_the_plan_in_force() -> None:
    """Without a new plan, a plan hours later still said that "the previous solve failed"."""
    world = World(replace(a_pipeline(), policy="loki-paper"), a_profile()).start("w0", "w1", "w2")
    world.solving = False
    world.run(11.0)
    world.tell(Failed(world.solves.pop().job, "the planner broke"))
    world.solving = True
    world.run(11.0)
    assert len(world.plans) == 1
    world.command("set-slo", slo="250ms")
    world.run(1.0)
    assert "the planner broke" not in "; ".join(plan.reason for plan in world.plans)


def test_a_failed_command_does_not_swallow_other_reasons_to_plan() -> None:
    world = a_world(solving=False).start("w0", "w1", "w2")
    world.finish_solves()
    world.workers["w3"] = FakeWorker("w3")
    world.command("apply-policy", policy="huge")
    world.run(0.2)
    world.finish_solves()
    world.finish_solves()
    assert [result.ok for result in world.results] == [False]
    assert world.solves == []
    world.command("drain", target="w3")
    world.finish_solves()
    assert world.results[-1].ok


def test_a_policy_that_has_left_the_file_gives_way_to_the_files_own() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.command("apply-policy", policy="accurate")
    world.pipeline = a_pipeline(slots=2)
    world.restart_controller()
    world.run(0.4)
    assert world.plan.settings == FILED


def test_changed_file_settings_override_earlier_commands() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.command("apply-policy", policy="accurate")
    world.command("set-slo", slo="250ms")
    world.command("set-demand", qps="40")
    world.pipeline = replace(world.pipeline, slo_s=0.4)
    world.restart_controller()
    world.run(0.4)
    wanted = structs.replace(FILED, policy="accurate", demand_qps=40.0, slo_s=0.4, filed_slo_s=0.4)
    assert world.plan.settings == wanted
    other = replace(VIT, name="other")
    world.pipeline = replace(world.pipeline, policies=(VIT, other), policy="other")
    world.restart_controller()
    world.run(0.4)
    assert world.plan.settings == structs.replace(wanted, policy="other", filed_policy="other")


def test_a_rollback_is_no_change_of_the_file() -> None:
    world = a_world().start("w0", "w1", "w2")
    before = world.plan.epoch
    world.pipeline = replace(world.pipeline, slo_s=0.4)
    world.restart_controller()
    world.run(0.4)
    world.command("rollback", epoch=str(before))
    back = structs.replace(FILED, slo_s=0.3, filed_slo_s=0.4)
    assert world.plan.settings == back
    world.restart_controller()
    world.run(0.4)
    assert world.plan.settings == back


def test_remembered_plans_and_ids_are_bounded() -> None:
    history = History(a_pipeline())
    world = a_world().start("w0", "w1", "w2")
    for epoch in range(1, REMEMBERED_PLANS + 4):
        settings = structs.replace(FILED, demand_qps=float(epoch))
        history.add(structs.replace(world.plan, epoch=epoch, settings=settings))
    assert (min(history.plans), len(history.plans)) == (4, REMEMBERED_PLANS)
    assert history.outdated == ["00000001", "00000002", "00000003"]
    command_queue = CommandQueue()
    for number in range(KNOWN_IDS + 1):
        assert command_queue.know(str(number))
    assert [command_queue.know("1"), command_queue.know("0")] == [False, True]


def test_only_the_newest_of_plans_that_only_redistribute_traffic_is_remembered() -> None:
    history, plan = History(a_pipeline()), a_world().start("w0", "w1", "w2").plan
    drained = structs.replace(FILED, drained=("w1",))
    changes: dict[int, dict[str, Any]] = {
        1: {}, 2: {"routes": ()}, 3: {}, 4: {"settings": drained}, 5: {"settings": drained},
    }  # fmt: skip
    versions = []
    for epoch, change in changes.items():
        later = structs.replace(plan, epoch=epoch, **change)
        versions.append(history.version(later))
        history.add(later)
    assert versions == ["00000001", ROUTES, ROUTES, "00000004", ROUTES]
    assert sorted(history.plans) == [1, 4, 5]


def test_plans_beyond_the_topic_limit_are_deleted_with_the_next_plan() -> None:
    world, before = a_world(), REMEMBERED_PLANS + 2
    for epoch in range(1, before + 1):
        settings = structs.replace(FILED, demand_qps=float(epoch))
        plan = Plan(pipeline="postcode", epoch=epoch, issued_s=0.0, reason="", settings=settings)
        world.arrive(plan, PLANS)
    assert world.forgotten == []
    world.start("w0", "w1", "w2")
    assert [plan.epoch for plan in world.plans] == [before + 1]
    assert world.forgotten == [f"postcode/0000000{epoch}" for epoch in (1, 2, 3)]


def test_a_command_is_answered_once_whoever_repeats_it() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.command("set-slo", slo="250ms", id="x")
    world.command("set-slo", slo="900ms", id="x")
    world.restart_controller()
    world.command("set-slo", slo="900ms", id="x")
    world.run(3.0)
    assert [result.id for result in world.results] == ["x"]
    assert world.plan.settings.slo_s == 0.25


def test_a_command_takes_the_place_of_the_solve_that_is_under_way() -> None:
    world = a_world(solving=False).start("w0", "w1", "w2")
    assert world.command("set-slo", slo="250ms") is None  # no plan serves yet
    assert [solve.job for solve in world.solves] == [1, 2]
    world.finish_solves()
    assert [plan.settings.slo_s for plan in world.plans] == [0.25]
    assert [(result.ok, result.epoch) for result in world.results] == [(True, 1)]


def test_static_and_drain_are_carried_out_while_a_solve_takes_its_time() -> None:
    world = a_world().start("w0", "w1", "w2", "w3")
    world.command("apply-policy", policy="slow")
    world.solving = False
    world.run(11.0)
    hung = world.solves.pop()  # for the policy's interval
    for action, arguments in (("apply-policy", {"policy": "static"}), ("drain", {"target": "w3"})):
        result = world.command(action, **arguments)
        assert result is not None
        assert result.ok
    plans = len(world.plans)
    world.tell(Solved(hung.job, Allocation(())))  # it is no longer of use
    assert len(world.plans) == plans
    assert world.plan.settings.policy == "static"
    assert world.plan.settings.drained == ("w3",)


def test_commands_and_workers_of_other_pipelines_are_theirs() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.arrive(Command(id="c7", pipeline="other", action="pause"), COMMANDS)
    world.arrive(structs.replace(world.plan, pipeline="other", epoch=9), PLANS)
    other = structs.replace(world.workers["w0"].report(world.now), pipeline="other", node="w7")
    world.arrive(other, REPORTS)
    world.run(2.0)
    assert (len(world.plans), world.results) == (1, [])


def test_command_without_a_pipeline_does_not_apply_to_one_started_later() -> None:
    world = a_world()
    world.arrive(Command(id="c8", pipeline="", action="pause"), COMMANDS)
    world.arrive(Command(id="c9", pipeline="postcode", action="replan"), COMMANDS)
    before_s = world.now - 60.0
    world.start("w0", "w1", "w2")
    # The app reads the topic again from the beginning after it has started.
    nameless = Command(id="c8", pipeline="", action="pause")
    world.tell(Arrived(nameless, COMMANDS, 0, 0, before_s))
    world.run(1.0)
    assert [result.id for result in world.results] == ["c9"]
    assert not world.plan.settings.paused


@pytest.mark.parametrize("record", [
    Command(id="c1", pipeline="postcode", action="pause"), Garbled(b"{", "no JSON", id="c1"),
])  # fmt: skip
def test_a_command_whose_sender_has_given_up_is_not_carried_out(record: Record) -> None:
    world = a_world().start("w0", "w1", "w2")
    world.tell(Arrived(record, COMMANDS, 0, 0, world.now - COMMAND_VALID_S - 1.0))
    assert (len(world.plans), world.results) == (1, [])


def test_a_command_that_waited_too_long_for_workers_is_refused_with_the_reason() -> None:
    world = a_world()
    world.tell(Woke())
    world.arrive(Command(id="c1", pipeline="postcode", action="pause"), COMMANDS)
    world.now += COMMAND_VALID_S + 1.0
    world.start("w0", "w1", "w2")
    world.run(1.0)
    ((ok, message),) = [(result.ok, result.message) for result in world.results]
    assert not ok
    assert "no worker has reported" in message
    assert not world.plan.settings.paused


def test_unreadable_command_gets_an_answer() -> None:
    world = a_world().start("w0", "w1", "w2")
    garbled = Arrived(Garbled(b"{", "this is no JSON", id="c9"), COMMANDS, 0, 5, world.now)
    world.tell(garbled)
    world.tell(garbled)
    assert [(r.id, r.ok, r.message) for r in world.results] == [("c9", False, "this is no JSON")]


def test_rollback_restores_an_epochs_settings() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.command("apply-policy", policy="accurate")
    world.command("set-slo", slo="2s")
    result = world.command("rollback", epoch="1")
    assert result is not None
    assert (result.ok, result.epoch) == (True, 4)
    assert world.plan.settings == world.plans[0].settings
    assert world.plan.leases == world.plans[0].leases


def test_restarted_controller_resumes_from_the_state_of_its_predecessor() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.command("apply-policy", policy="accurate")
    world.restart_controller()
    world.run(5.0)
    assert len(world.plans) == 2
    world.command("set-demand", qps="40")
    assert (world.plan.epoch, world.plan.demand_qps) == (3, 40.0)
    assert world.plan.settings == structs.replace(FILED, policy="accurate", demand_qps=40.0)


def test_a_worker_that_died_with_the_controller_is_missed_after_a_grace() -> None:
    world = a_world().start("w0", "w1", "w2")
    del world.workers["w2"]
    world.restart_controller()
    world.run(1.9)
    assert len(world.plans) == 1
    world.run(0.3)
    assert world.leases()["w1"] == ("read", "forest", (0, 1), 0)


def test_plan_of_another_control_app_is_superseded_by_a_higher_epoch() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.arrive(world.plan, PLANS)
    world.run(2.0)
    assert world.plan.epoch == 1
    world.arrive(structs.replace(world.plan, epoch=7, issued_s=world.now), PLANS)
    world.run(2.0)
    assert [plan.epoch for plan in world.plans] == [1, 8]


def test_ingress_reports_make_the_demand() -> None:
    world = a_world().start("w0", "w1", "w2")
    for step in range(3):
        world.arrive(an_ingress_report(world.now, 30.0 * step, "in-1"), REPORTS)
        world.run(1.0)
    world.command("set-slo", slo="1s")
    assert world.plan.demand_qps == pytest.approx(30.0)


def test_every_action_has_an_answer() -> None:
    world = a_world().start("w0", "w1", "w2")
    for action in ACTIONS:
        world.command(action)
    assert len(world.results) == len(ACTIONS)


def test_it_reads_its_topics_and_asks_to_be_woken_again() -> None:
    world = a_world()
    assert world.controller.handle(Woke(), 50.0) == [
        Assign(PLANS, (0,)), Assign(REPORTS, (0,)), Assign(COMMANDS, (0,)), Wake(50.1),
    ]  # fmt: skip
    assert world.controller.handle(Woke(), 50.05) == []
    assert world.controller.handle(Woke(), 50.1) == [Wake(50.2)]


def test_plans_and_answers_go_to_the_first_partition_of_their_topics() -> None:
    world = a_world(solving=False).start("w0", "w1", "w2")
    sent: list[Send] = []
    perform = world._perform

    def keep(effects: list[object]) -> None:
        sent.extend(effect for effect in effects if isinstance(effect, Send))
        perform(effects)  # type: ignore[arg-type]

    world._perform = keep  # type: ignore[method-assign, assignment]
    world.finish_solves()
    world.command("nonsense")
    assert [(s.topic, s.slot, s.key) for s in sent] == [
        (PLANS, 0, "postcode/00000001"),
        ("command-results", 0, "postcode/c1"),  # compacted, and other pipelines answer as well
    ]


def test_swap_that_does_not_fit_keeps_the_plan_and_is_reported_once() -> None:
    # Each variant takes 1 byte: one fits, two do not.
    world = a_world(profile=a_profile(), memory={"cpu": 1}).start("w0", "w1", "w2")
    before = world.plan
    for _ in range(2):
        result = world.command("apply-policy", policy="accurate")
        assert result is not None
        assert not result.ok
        assert "holds read/forest until read/vit is loaded" in result.message
    assert {lease.variant for lease in world.plan.leases} == {"net", "forest"}
    assert world.plan.settings == before.settings
    assert [effect.constraints for effect in world.rejected] == [("swap-memory",)]


def test_without_any_worker_a_command_is_answered_before_its_sender_gives_up() -> None:
    """It got no answer, not even a ``pause``."""
    world = World(a_pipeline(), a_profile()).start()
    assert world.command("pause") is None
    world.run(COMMAND_VALID_S - 0.5)
    assert world.results == []
    world.run(0.6)
    assert [(each.id, each.ok, each.message) for each in world.results] == [
        ("c1", False, NO_WORKER)
    ]


def test_a_command_that_was_carried_out_has_its_result_although_no_worker_is_left() -> None:
    """It was refused, "no worker has reported": the control app and all workers had died after the
    plan."""
    world = a_world().start("w0", "w1", "w2")
    world.command("drain", id="c1", target="w2")
    world.workers.clear()
    world.results.clear()
    world.restart_controller()
    world.run(COMMAND_VALID_S + 0.1)
    assert [(each.ok, each.message) for each in world.results] == [
        (True, "carried out by plan 2, before the control app restarted")
    ]
