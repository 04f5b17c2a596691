"""The controller under policies that choose per batch: plans, tables and failures."""

from dataclasses import replace
from typing import Any

import pytest

from control.policies import POLICIES
from control.policies.solvers import TABLE, solve
from profiles.measurements import Entry
from profiles.profile_table import ProfileTable
from schemas.effects import PLANS, Effect, Send, Solved
from schemas.pipeline import Pipeline
from schemas.records import Selection
from tests.control_world import World, a_pipeline, a_profile, an_entry

WORKERS = ("w0", "w1", "w2")
# Two loads keep tests quick; refinement is tested separately.
QUICK = POLICIES["ramsis"].policy(
    "quick", {"loads": (100.0, 400.0), "paced": False, "longest_run": 1}
)


class Selecting(World):
    """A world that also keeps the tables."""

    tables: list[Selection]

    def _perform(self, effects: Any) -> None:
        listed: list[Effect] = list(effects)
        for effect in listed:
            if isinstance(effect, Send) and isinstance(effect.record, Selection):
                assert effect.topic == PLANS
                self.tables.append(effect.record)
        super()._perform(listed)


def readers(policy: str = "quick", **changes: Any) -> Pipeline:
    """Return a pipeline of ``read`` alone."""
    pipeline = a_pipeline(policies=(QUICK,))
    return replace(pipeline, tasks=(pipeline.task("read"),), policy=policy, **changes)


def a_world(
    pipeline: Pipeline | None = None, profile: ProfileTable | None = None, **changes: Any
) -> Selecting:
    world = Selecting(pipeline or readers(), profile or a_profile(), **changes)
    world.tables = []
    return world


def started(*args: Any, **changes: Any) -> Selecting:
    world = a_world(*args, **changes)
    world.start(*WORKERS)
    world.run(4.0)
    return world


def test_every_worker_has_the_same_lease_and_an_equal_share() -> None:
    world = started()
    assert {(lease.variant, lease.open_slot >= 0) for lease in world.plan.leases} == {
        ("forest", True)
    }
    assert [route.share for route in world.plan.routes] == [pytest.approx(1 / 3)] * 3
    # Four of forest take 4 ms: 1,000 items/s of each worker.
    assert world.plan.capacity_qps == pytest.approx(3000.0)


def test_the_table_of_the_highest_load_comes_first_then_all() -> None:
    world = started()
    assert [[t.qps for t in made.tables] for made in world.tables] == [[400.0], [100.0, 400.0]]
    assert [made.complete for made in world.tables] == [False, True]
    made = world.tables[-1]
    assert (made.pipeline, made.task, made.policy, made.workers) == ("postcode", "read", "quick", 3)
    assert sorted(made.variants) == ["forest", "vit"]
    assert made.slo_s == pytest.approx(0.3 - 3 * 1.4e-3)


def test_a_plan_tells_the_accuracy_that_its_tables_expect() -> None:
    world = started()
    world.run(11.0)  # the next plan
    light = world.tables[-1].tables[0]
    assert world.plan.expected_accuracy == light.expected_accuracy
    assert light.expected_accuracy > 0.9  # the lease's variant has 0.8


def test_tables_are_rebuilt_for_other_workers_and_old_ones_stay_until_all_are_built() -> None:
    world = started()
    before = len(world.tables)
    world.workers.pop("w2")
    world.run(3.0)
    assert [made.workers for made in world.tables[before:]] == [2]
    assert [t.qps for t in world.tables[-1].tables] == [100.0, 400.0]


def test_a_plan_that_changes_nothing_asks_for_no_tables() -> None:
    world = started()
    before = len(world.tables)
    world.command("replan")
    world.run(12.0)
    assert len(world.tables) == before


def test_fixed_demand_is_the_load_of_the_only_table() -> None:
    world = started()
    world.command("set-demand", qps="250")
    world.run(1.0)
    assert [t.qps for t in world.tables[-1].tables] == [250.0]


def test_other_slos_have_other_tables() -> None:
    world = started()
    world.command("set-slo", slo="200ms")
    world.run(1.0)
    assert world.tables[-1].slo_s == pytest.approx(0.2 - 3 * 1.4e-3)


def test_table_for_an_outdated_request_is_ignored() -> None:
    world = a_world()
    world.solving = False
    world.start(*WORKERS)
    world.run(4.0)
    plan = world.solves.pop()
    world.tell(Solved(plan.job, solve(plan.solver, plan.problem)))
    (table,) = world.solves
    assert table.solver == TABLE
    world.solves.clear()
    world.solving = True
    world.command("set-slo", slo="200ms")
    world.solves.append(table)  # it ends behind the command
    world.run(1.0)
    assert [made.slo_s for made in world.tables] == [pytest.approx(0.2 - 3 * 1.4e-3)] * 2


def test_policies_change_by_command_and_roll_back() -> None:
    world = started(readers("static"))
    first = world.plan.epoch
    assert world.tables == []
    applied = world.command("apply-policy", policy="quick")
    assert applied is not None
    assert applied.ok
    world.run(1.0)
    assert world.plan.settings.policy == "quick"
    assert len(world.tables) == 2
    back = world.command("rollback", epoch=str(first))
    assert back is not None
    assert back.ok
    world.run(1.0)
    assert world.plan.settings.policy == "static"
    assert len(world.tables) == 2
    assert set(POLICIES) >= {"ramsis", "ramsis-paper", "ramsis-variable"}


def test_restarted_controller_rebuilds_the_tables() -> None:
    world = started()
    before = len(world.tables)
    world.restart_controller()
    world.run(4.0)
    assert [made.complete for made in world.tables[before:]] == [False, True]


# ---------------------------------------------------------------------- beside loki


def test_a_task_that_selects_has_tables_beside_the_policy_that_plans() -> None:
    pipeline = a_pipeline()
    locate, read = pipeline.tasks
    pipeline = replace(pipeline, tasks=(locate, replace(read, selection="ramsis")), policy="loki")
    world = started(pipeline)
    world.command("set-demand", qps="50")
    world.run(2.0)
    made = world.tables[-1]
    assert (made.task, made.policy, made.complete) == ("read", "loki", True)
    readers_open = [x for x in world.plan.leases if x.task == "read" and x.open_slot >= 0]
    assert made.workers == len(readers_open)
    # The task's own part of the SLO without hops, in proportion to the latencies of leases.
    assert 0 < made.slo_s < 0.3
    world.command("apply-policy", policy="static")
    world.run(1.0)
    before = len(world.tables)
    world.run(2.0)
    assert len(world.tables) == before  # static keeps its meaning


# ---------------------------------------------------------------------- what cannot be


def refused(pipeline: Pipeline, profile: ProfileTable | None, **changes: Any) -> str:
    """Return why a policy that selects cannot be applied."""
    world = Selecting(replace(pipeline, policy="static"), profile, **changes)
    world.tables = []
    world.start(*WORKERS)
    world.run(4.0)
    result = world.command("apply-policy", policy="quick")
    assert result is not None
    assert not result.ok
    assert world.tables == []
    return result.message


def test_pipeline_of_several_tasks_is_refused_in_favour_of_loki() -> None:
    message = refused(a_pipeline(policies=(QUICK,)), a_profile())
    assert message.endswith("plan with loki, and write `selection: ramsis` under a task")


def test_missing_profile_is_refused_in_one_sentence() -> None:
    assert "needs a profile of every variant" in refused(readers(), None)


def test_variants_that_do_not_fit_a_worker_together_are_refused() -> None:
    entries = tuple(replace(e, memory_bytes=6 * 10**7) for e in a_profile().entries)
    message = refused(readers(), ProfileTable("postcode", entries), memory={"cpu": 10**8})
    assert "2 variants of 'read', which take 120 MB, and it may use 100 MB" in message


def test_task_beside_loki_has_no_tables_if_its_variants_do_not_fit_together() -> None:
    pipeline = a_pipeline()
    locate, read = pipeline.tasks
    pipeline = replace(pipeline, tasks=(locate, replace(read, selection="ramsis")), policy="loki")
    entries = tuple(replace(e, memory_bytes=6 * 10**7) for e in a_profile().entries)
    world = started(pipeline, ProfileTable("postcode", entries), memory={"cpu": 10**8})
    world.command("set-demand", qps="50")
    world.run(2.0)
    assert [made.tables for made in world.tables] == [()]
    assert "which take 120 MB" in world.tables[0].reason


@pytest.mark.parametrize("slo_s", [0.004, 0.005])
def test_slo_below_the_fastest_model_is_refused_with_a_remedy(slo_s: float) -> None:
    message = refused(readers(slo_s=slo_s), a_profile())
    assert "raise the SLO" in message


def test_workers_that_are_not_alike_are_refused() -> None:
    def slower(entry: Entry) -> Entry:
        rows = tuple(replace(r, p95_s=2 * r.p95_s, p99_s=2 * r.p99_s) for r in entry.latency)
        return replace(entry, device="cuda:0", latency=rows)

    entries = a_profile().entries
    profile = ProfileTable("postcode", (*entries, *map(slower, entries)))
    world = Selecting(replace(readers(), policy="static"), profile)
    world.tables = []
    world.start(*WORKERS)
    world.workers["w0"].device = "cuda:0"
    world.run(4.0)
    result = world.command("apply-policy", policy="quick")
    assert result is not None
    assert "use workers of one kind" in result.message


def test_load_above_capacity_is_planned_and_reported() -> None:
    world = started()
    world.command("set-demand", qps="9000")
    world.run(1.0)
    assert not world.plan.feasible
    assert "9000 queries/s are more than the" in world.plan.binding
    assert [t.qps for t in world.tables[-1].tables] == [9000.0]


def test_zero_load_has_a_table() -> None:
    world = started()
    world.command("set-demand", qps="0")
    world.run(1.0)
    assert world.tables[-1].complete


def test_one_model_and_equal_models_have_tables() -> None:
    one = replace(readers(), tasks=(replace(readers().root, variants=readers().root.variants[:1]),))
    assert started(one).tables[-1].variants == ("forest",)
    equal = ProfileTable(
        "postcode",
        (an_entry("read", "forest", 1000.0, 0.8), an_entry("read", "vit", 1000.0, 0.8)),
    )
    assert len(started(readers(), equal).tables[-1].variants) == 1


def test_a_latency_that_falls_with_the_batch_has_tables() -> None:
    def falling(entry: Entry) -> Entry:
        names = ("mean_s", "p50_s", "p90_s", "p95_s", "p99_s")
        rows = (replace(r, **dict.fromkeys(names, 0.01 / r.batch)) for r in entry.latency)
        return replace(entry, latency=tuple(rows))

    profile = ProfileTable("postcode", tuple(falling(e) for e in a_profile().entries))
    assert started(readers(), profile).tables[-1].complete


def test_a_thousand_workers_have_a_plan_and_tables() -> None:
    pipeline = readers()
    pipeline = replace(pipeline, tasks=(replace(pipeline.root, slots=1000),))
    world = a_world(pipeline, expected=1000)
    world.start(*(f"w{i:03}" for i in range(1000)))
    world.run(1.0)
    assert len(world.plan.leases) == 1000
    assert (world.tables[-1].workers, world.tables[-1].complete) == (1000, True)


def test_loads_are_halved_until_queries_go_one_by_one() -> None:
    world = started(readers("ramsis"))
    world.run(30.0)
    made = world.tables[-1]
    assert made.complete
    assert max(table.run for table in made.tables) > 1
    assert made.tables[0].run == 1


def test_drain_and_static_do_not_wait_for_a_solve_or_for_tables() -> None:
    world = started()
    world.solving = False
    world.run(12.0)
    assert world.solves
    drained = world.command("drain", target=WORKERS[0])
    assert drained is not None
    assert drained.ok, drained.message
    assert all(x.open_slot < 0 for x in world.plan.leases if x.worker == WORKERS[0])
    fixed = world.command("apply-policy", policy="static")
    assert fixed is not None
    assert fixed.ok
    assert world.plan.settings.policy == "static"
