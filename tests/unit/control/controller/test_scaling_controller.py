"""The controller under a policy that scales accuracy: when it replans, and the steps it takes."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest

from control.checks.structure_check import check_structure
from control.estimation.demand import counted
from profiles.measurements import Entry, Latency, PathAccuracy
from profiles.profile_table import ProfileTable
from schemas.effects import PLANS, REPORTS, Effect, Send, Woke
from schemas.pipeline import Policy
from schemas.records import Factor, Plan, Report
from tests.control_world import FakeWorker, World, a_pipeline, a_profile, an_entry

WORKERS = ("w0", "w1", "w2", "w3", "w4", "w5")


class Busy(World):
    """A world with an input topic that fills at a given rate."""

    rate: float = 0.0
    total: float = 0.0

    paces: Mapping[str, float] = {}  # by worker: seconds for a profiled one

    def flow(self, seconds: float, rate: float) -> None:
        """Let time pass while ``rate`` queries arrive each second."""
        for _ in range(round(seconds / 0.2)):
            self.total += 0.2 * rate
            if self.paces:
                self.work()
            self.run(0.2)
            self.tell(counted(self.now, {0: round(self.total)}, {}))

    def work(self) -> None:
        """Let each worker of a reader run two batches."""
        plan = self.plans[-1] if self.plans else None
        leases = {x.worker: x for x in plan.leases if x.task == "read"} if plan else {}
        for name, lease in leases.items():
            counts = self.workers[name].counts
            each_s = a_profile().latency_s("read", lease.variant, "cpu", 4, "mean")
            new = {"batches": 2.0, "finished": 8.0, "busy_s": 2 * each_s * self.paces[name]}
            for what, more in new.items():
                key = f"{what}/{lease.key}"
                counts[key] = counts.get(key, 0.0) + more


def a_world(policy: str = "loki", policies: tuple[Policy, ...] = (), **changes: object) -> Busy:
    pipeline = replace(a_pipeline(policies=policies), policy=policy)
    pipeline = replace(pipeline, **changes)  # type: ignore[arg-type]
    world = Busy(pipeline, a_profile(), expected=6)
    world.start(*WORKERS)
    world.flow(5.0, 50.0)
    return world


def running(plan: Plan) -> dict[str, int]:
    """Return the number of open workers by variant."""
    return dict(Counter(f"{x.task}/{x.variant}" for x in plan.leases if x.open_slot >= 0))


def test_a_steady_demand_is_served_by_the_fewest_of_the_most_accurate() -> None:
    world = a_world()
    # 50 queries/s and headroom: one locator, 250 items/s and more for readers of 200 each.
    assert running(world.plan) == {"locate/net": 1, "read/vit": 2}
    assert (world.plan.mode, world.plan.feasible) == ("hardware", True)
    assert world.plan.demand_qps == pytest.approx(60.0, abs=2.0)
    assert world.plan.expected_accuracy == pytest.approx(0.9 * 0.95)


def test_a_class_that_no_plan_can_meet_does_not_delay_a_plan_for_more_demand() -> None:
    """The plan is infeasible, but for another reason than its capacity; a jump used to wait for
    the interval, ten seconds at a third of the capacity needed."""
    world = a_world(slo_classes={"gold": 0.001})
    assert (world.plan.feasible, len(world.plan.leases)) == (False, 3)
    world.flow(2.0, 150.0)
    assert len(world.plan.leases) == 6


def test_plan_compensates_for_a_slow_worker() -> None:
    world = a_world()
    world.flow(10.0, 75.0)
    assert running(world.plan) == {"locate/net": 2, "read/vit": 3}
    slow = next(x.worker for x in world.plan.leases if x.variant == "vit")
    world.paces = dict.fromkeys(WORKERS, 1.0) | {slow: 3.0}
    world.flow(40.0, 75.0)
    assert any("slow workers reduce" in plan.reason for plan in world.plans)
    assert running(world.plan) == {"locate/net": 2, "read/vit": 4}
    shares = {route.slot: route.share for route in world.plan.routes if route.task == "read"}
    open_slots = {x.worker: x.open_slot for x in world.plan.leases}
    assert shares[open_slots[slow]] < 0.5 * max(shares.values())


def with_a_large_vit() -> ProfileTable:
    entries = tuple(
        replace(entry, memory_bytes=10**9 if entry.variant == "vit" else 10**6)
        for entry in a_profile().entries
    )
    return replace(a_profile(), entries=entries)


def test_a_live_plan_obeys_the_memory_of_workers() -> None:
    pipeline = replace(a_pipeline(), policy="loki")
    world = Busy(pipeline, with_a_large_vit(), 6, memory={"cpu": 10**8})
    world.start(*WORKERS)
    world.flow(5.0, 50.0)
    assert running(world.plan) == {"locate/net": 1, "read/forest": 1}


def test_fixed_plan_beyond_the_memory_of_a_worker_is_refused() -> None:
    vits = Policy(name="vits", replicas={"locate/net": 1, "read/vit": 2})
    world = World(a_pipeline(policies=(vits,)), with_a_large_vit(), memory={"cpu": 10**8})
    world.start("w0", "w1", "w2")
    assert world.plan.feasible
    result = world.command("apply-policy", policy="vits")
    assert result is not None
    assert not result.ok
    assert "1000 MB and a worker of cpu has 100 MB; name a smaller variant" in result.message


def test_live_plan_prefers_the_path_with_the_higher_measured_accuracy() -> None:
    # A fast and a slow reader. The slow one's product is higher, but end to end it reads worse.
    measured = replace(
        a_profile(),
        paths=(
            PathAccuracy(("locate/net", "read/forest"), 0.88, 1000),
            PathAccuracy(("locate/net", "read/vit"), 0.85, 1000),
        ),
    )
    world = Busy(replace(a_pipeline(), policy="loki"), measured, expected=6)
    world.start(*WORKERS)
    world.flow(12.0, 180.0)  # more than readers of the most accurate kind can carry
    assert world.plan.mode == "accuracy"
    assert running(world.plan).keys() == {"locate/net", "read/forest"}
    assert world.plan.expected_accuracy == pytest.approx(0.88)


def test_a_jump_of_demand_does_not_wait_for_the_interval() -> None:
    world = a_world()
    before = len(world.plans)
    world.flow(1.2, 180.0)
    assert any("demand jumped to" in plan.reason for plan in world.plans[before:])
    world.flow(2.0, 180.0)
    # 900 items/s exceed four readers of 200 behind two locators.
    assert world.plan.mode == "accuracy"
    assert running(world.plan)["locate/net"] == 2
    assert {"read/vit", "read/forest"} <= running(world.plan).keys()


def test_a_jump_has_a_quick_plan_before_its_solve_has_ended_and_the_exact_one_after() -> None:
    world = a_world()
    world.solving, before = False, len(world.plans)
    world.flow(0.4, 180.0)
    assert len(world.plans) > before
    quick = world.plan
    assert "quick plan" in quick.reason
    assert quick.demand_qps > 120.0
    assert quick.capacity_qps is not None
    world.solving = True
    world.finish_solves()
    world.flow(3.0, 180.0)
    assert "quick plan" not in world.plan.reason
    assert world.plan.mode == "accuracy"


def test_a_jump_without_a_known_rate_is_no_reason_for_a_plan() -> None:
    """Plans for 0 queries/s were made at the end of the second with the first queries."""
    world = Busy(replace(a_pipeline(), policy="loki"), a_profile(), expected=6)
    world.start(*WORKERS)
    world.flow(4.0, 0.0)
    world.now, made = world.now + 0.84 - world.now % 1, len(world.plans)
    for came in (0, 189, 206):
        world.now, world.total = world.now + 0.1, world.total + came
        world.tell(counted(world.now, {0: world.total}, {}))
    asked = [plan.demand_qps for plan in world.plans[made:]]
    assert asked
    assert min(asked) > 1900.0


def test_a_jump_whose_first_queries_had_a_plan_has_its_own_as_soon_as_it_is_known() -> None:
    world = Busy(replace(a_pipeline(), policy="loki"), a_profile(), expected=6)
    world.start(*WORKERS)
    world.flow(0.4, 0.0)
    for came in (3, 40):
        world.now += 0.1
        world.total += came
        world.tell(counted(world.now, {0: world.total}, {}))
    assert world.plan.demand_qps > 400.0


def test_capacity_that_a_plan_adds_after_an_overload_is_admitted_at_once() -> None:
    """Most queries are late until workers join; some are still refused afterwards."""
    world = Busy(replace(a_pipeline(), policy="loki"), a_profile(), expected=3)
    world.start(*WORKERS[:3])
    for second in range(14):
        counts = {"answered": 20.0 * second, "late": 80.0 * second, "refused": 100.0 * second}
        egress = Report(
            node="e", role="egress", pipeline="postcode", epoch=1, incarnation=1.0,
            sent_s=world.now, state="ready", counts=counts,
        )  # fmt: skip
        world.arrive(egress, REPORTS)
        world.flow(1.0, 400.0)
    before = world.plan.capacity_qps
    world.workers |= {name: FakeWorker(name, incarnation=world.now) for name in WORKERS[3:]}
    world.flow(4.0, 400.0)
    after = world.plan.capacity_qps
    assert before is not None
    assert after == pytest.approx(before + 200.0)  # 200 were planned, and 400 are now


def runs(world: Busy, seconds: float, stretch: Callable[[float], float]) -> list[str]:
    """Run batches that take ``stretch`` times the planned duration, given by elapsed second;
    return the reasons of the plans made."""
    made = len(world.plans)
    for at in range(round(seconds / 0.2)):
        for worker in world.workers.values():
            lease = next((x for x in world.plan.leases if x.worker == worker.name), None)
            if lease is not None:
                name = f"{lease.task}/{lease.variant}"
                each_s = 4 / {"locate/net": 100.0, "read/forest": 1000.0, "read/vit": 200.0}[name]
                more = {"batches": 20, "finished": 80, "busy_s": 20 * each_s * stretch(at * 0.2)}
                for what, count in more.items():
                    key = f"{what}/{name}"
                    worker.counts[key] = worker.counts.get(key, 0.0) + count
        world.flow(0.2, 400.0)
    return [plan.reason for plan in world.plans[made:]]


def test_slight_changes_of_the_pace_share_a_plan_and_a_large_one_has_its_own_at_once() -> None:
    profiled = Policy(name="profiled", kind="loki", paced=False)  # plans by the profile alone
    pipeline = replace(a_pipeline(policies=(profiled,)), policy="profiled")
    world = Busy(pipeline, a_profile(), expected=3)
    world.start(*WORKERS[:3])
    world.flow(5.0, 400.0)
    runs(world, 10.0, lambda _: 1.5)
    before = world.plan.capacity_qps
    made = runs(world, 4.0, lambda after_s: 1.5 + after_s / 2)
    after = world.plan.capacity_qps
    assert before is not None
    assert after is not None
    assert after < 0.85 * before
    assert 2 <= len(made) <= 6
    world.flow(3.0, 400.0)
    settled = world.plan.capacity_qps
    assert settled is not None
    runs(world, 0.6, lambda _: 9.0)
    leapt = world.plan.capacity_qps
    assert leapt is not None
    assert leapt < 0.7 * settled


def test_without_quick_plans_a_jump_waits_for_its_solve() -> None:
    exact = Policy(name="exact", kind="loki", options={"quick": False}, estimator="trend",
                   routing="balanced")  # fmt: skip
    world = a_world("exact", (exact,))
    world.solving, before = False, len(world.plans)
    world.flow(1.0, 180.0)
    assert not any("quick" in plan.reason for plan in world.plans[before:])


def test_demand_that_falls_is_noticed_before_the_interval_too() -> None:
    world = a_world()
    world.flow(12.0, 180.0)
    assert world.plan.mode == "accuracy"
    before = len(world.plans)
    world.flow(5.0, 10.0)
    assert any("demand fell to" in plan.reason for plan in world.plans[before:])
    assert not any("jumped" in plan.reason for plan in world.plans[before:])
    assert world.plan.mode == "hardware"
    world.flow(20.0, 10.0)
    assert running(world.plan)["read/vit"] == 1


def test_between_solves_routes_follow_demand_and_leases_stay() -> None:
    policy = Policy(
        name="mixed", kind="static", replicas={"locate/net": 1, "read/vit": 1, "read/forest": 1},
        routing="balanced", utilisation=0.9,
    )  # fmt: skip
    world = a_world("mixed", (policy,))
    # 250 items/s: vit takes 180 of them.
    assert reading(world.plan) == {0: pytest.approx(180 / 250, abs=0.03), 1: pytest.approx(
        70 / 250, abs=0.03)}  # fmt: skip
    leases, before = world.plan.leases, len(world.plans)
    world.flow(4.0, 20.0)
    assert {plan.reason for plan in world.plans[before:]} == {"routes for the current demand"}
    assert {plan.leases for plan in world.plans[before:]} == {leases}
    assert reading(world.plan) == {0: pytest.approx(1.0), 1: pytest.approx(0.0)}


def reading(plan: Plan) -> dict[int, float]:
    """Return the shares of readers, vit first."""
    slots = [x.open_slot for x in sorted(plan.leases, key=lambda x: x.variant, reverse=True)
             if x.task == "read"]  # fmt: skip
    shares = {route.slot: route.share for route in plan.routes if route.task == "read"}
    return {at: shares[slot] for at, slot in enumerate(slots)}


def test_compaction_keeps_only_the_newest_of_plans_that_redistribute_traffic() -> None:
    world, keys = a_world(), []
    perform = world._perform

    def keep(effects: Iterable[Effect]) -> None:
        listed = list(effects)
        keys.extend(e.key for e in listed if isinstance(e, Send) and e.topic == PLANS)
        perform(listed)

    world._perform = keep  # type: ignore[method-assign]
    world.flow(4.0, 52.0)
    world.command("set-slo", slo="400ms")
    assert keys[-1] == f"postcode/{world.plan.epoch:08d}"
    assert set(keys[:-1]) <= {"postcode/routes"}


def test_nothing_is_published_while_demand_is_steady() -> None:
    world = a_world()
    world.flow(12.0, 50.0)
    epoch = world.plan.epoch
    world.flow(25.0, 50.0)
    assert world.plan.epoch == epoch


def test_changed_fan_out_is_planned_at_once_and_survives_a_control_app_restart() -> None:
    world = a_world()
    world.flow(2.0, 50.0)
    world.workers["w0"].counts = {
        "finished/locate/net": 1000.0, "children/locate/net/read": 8000.0,
    }  # fmt: skip
    world.flow(2.0, 50.0)
    assert any("locate/net makes 8 items for read" in plan.reason for plan in world.plans)
    assert world.plan.factors == (Factor("locate/net", "read", 8.0, 1000.0),)
    assert running(world.plan)["read/vit"] == 3
    world.workers["w0"].counts = {}
    world.restart_controller()
    world.flow(4.0, 50.0)
    assert world.plan.factors == (Factor("locate/net", "read", 8.0, 1000.0),)
    assert running(world.plan)["read/vit"] == 3


@pytest.mark.parametrize("rate", [50.0, 75.0, 180.0])
def test_restarted_control_app_keeps_its_plan_until_it_has_measured_the_demand(rate: float) -> None:
    """It planned for no demand at first, and drained most workers."""
    world = a_world()
    world.flow(20.0, rate)
    before, epoch = world.plan, world.plan.epoch
    world.restart_controller()
    world.flow(10.0, rate)
    later = [plan for plan in world.plans if plan.epoch > epoch]
    assert later
    assert {frozenset(running(plan).items()) for plan in later} == {
        frozenset(running(before).items())
    }


def two_kinds() -> ProfileTable:
    """Return a profile where a GPU gains from batches of 4 and a CPU is too slow for them."""

    def entry(task: str, variant: str, device: str, one_s: float, four_s: float) -> Entry:
        made = an_entry(task, variant, 1.0, 0.9, fan_out=5.0 if task == "locate" else None)
        names = ("mean_s", "p50_s", "p90_s", "p95_s", "p99_s")
        rows = tuple(
            Latency(batch=batch, repeats=9, **dict.fromkeys(names, seconds))
            for batch, seconds in ((1, one_s), (4, four_s))
        )
        return replace(made, device=device, latency=rows)

    return ProfileTable(
        "postcode",
        (
            entry("locate", "net", "gpu", 0.01, 0.02), entry("locate", "net", "cpu", 0.04, 0.16),
            entry("read", "vit", "gpu", 0.01, 0.02), entry("read", "vit", "cpu", 0.02, 0.2),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("cpu", ["a", "z"])  # before or after the GPUs by name
def test_restart_keeps_a_variant_that_runs_in_two_batches_on_two_kinds_of_devices(
    cpu: str,
) -> None:
    """The target lacked the kinds: most workers drained, and GPUs got the batch of CPUs."""
    pipeline = replace(a_pipeline(read={"vit": None}), policy="loki")
    world = Busy(pipeline, two_kinds(), expected=9)
    for device, prefix, count in (("cpu", cpu, 5), ("gpu", "g", 4)):
        for name in (f"{prefix}{number}" for number in range(count)):
            world.workers[name] = FakeWorker(name, device, incarnation=world.now)
    world.tell(Woke())
    world.flow(12.0, 140.0)
    before, epoch = world.plan, world.plan.epoch
    assert {x.batch for x in before.leases if x.key == "read/vit"} == {1, 4}
    world.restart_controller()
    world.flow(12.0, 140.0)
    later = [plan for plan in world.plans if plan.epoch > epoch]
    assert later
    assert all(plan.leases == before.leases for plan in later)


def test_workers_of_a_task_without_a_free_slot_give_way_to_faster_ones_one_after_another() -> None:
    """The control app ended with an error: old workers waited for new ones, with no slot left."""
    pipeline = replace(a_pipeline(read={"vit": None}, slots=2), policy="loki")
    world = Busy(pipeline, two_kinds(), expected=4)
    for name in ("c0", "c1", "c2", "c3"):
        world.workers[name] = FakeWorker(name, "cpu", incarnation=world.now)
    world.tell(Woke())
    world.flow(10.0, 15.0)
    assert {x.worker for x in world.plan.leases if x.task == "read"} == {"c1", "c2"}
    for name in ("g0", "g1", "g2", "g3"):
        world.workers[name] = FakeWorker(name, "gpu", incarnation=world.now)
    world.flow(10.0, 60.0)
    assert {world.workers[x.worker].device for x in world.plan.leases} == {"gpu"}
    assert world.plan.capacity_qps == pytest.approx(80.0)
    assert not world.rejected


def test_restarted_control_app_follows_a_demand_that_has_changed_meanwhile() -> None:
    world = a_world()
    world.flow(10.0, 75.0)
    world.restart_controller()
    world.flow(1.0, 400.0)
    assert world.plan.demand_qps > 300.0
    world.restart_controller()
    world.flow(4.0, 0.0)
    assert world.plan.demand_qps < 50.0


def test_a_policy_is_applied_while_running_and_rolled_back() -> None:
    world = a_world()
    scaled, epoch = running(world.plan), world.plan.epoch
    world.command("apply-policy", policy="static")
    assert world.plan.settings.policy == "static"
    assert not any(route.latency_s for route in world.plan.routes)
    world.command("apply-policy", policy="loki-paper")
    assert world.plan.settings.policy == "loki-paper"
    world.command("rollback", epoch=str(epoch))
    world.flow(8.0, 50.0)
    assert (world.plan.settings.policy, running(world.plan)) == ("loki", scaled)


def test_demand_set_by_a_command_is_planned_for_unchanged() -> None:
    world = a_world()
    world.command("set-demand", qps="90")
    before = len(world.plans)
    world.flow(5.0, 200.0)
    assert world.plan.demand_qps == 90.0
    assert not any("jumped" in plan.reason for plan in world.plans[before:])


def test_every_plan_on_the_way_keeps_its_promises() -> None:
    world = a_world()
    for rate in (150.0, 400.0, 20.0, 90.0):
        world.flow(4.0, rate)
    del world.workers["w5"]
    world.flow(4.0, 90.0)
    assert [check_structure(plan, world.pipeline) for plan in world.plans] == [()] * len(
        world.plans
    )


def test_the_interval_is_the_policys() -> None:
    world = a_world("quick", (Policy(name="quick", kind="static", interval_s=2.0),))
    world.solving = False
    world.flow(2.4, 0.0)
    assert len(world.solves) == 1


@pytest.mark.parametrize("policy", ["loki-paper", "inferline", "proteus"])
def test_commands_do_not_wait_for_the_solve_of_a_policy_without_quick_plans(policy: str) -> None:
    world = a_world(policy)
    world.solving = False  # every later request stays in flight
    world.flow(12.0, 50.0)
    assert world.solves
    before = running(world.plan)
    drained = next(lease.worker for lease in world.plan.leases if lease.task == "read")

    paused = world.command("pause")
    assert paused is not None
    assert paused.ok
    assert world.command("resume") is not None

    result = world.command("drain", target=drained)
    assert result is not None
    assert result.ok, result.message
    assert all(lease.open_slot < 0 for lease in world.plan.leases if lease.worker == drained)
    assert {key.partition("/")[0] for key in running(world.plan)} == {"locate", "read"}
    assert "quick plan" in world.plan.reason
    assert sum(running(world.plan).values()) <= sum(before.values())

    assert world.command("set-slo", slo="400ms") is not None
    result = world.command("apply-policy", policy="static")
    assert result is not None
    assert result.ok
    assert world.plan.settings.policy == "static"
