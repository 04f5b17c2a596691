"""A control app without reports, or with late reports or another clock, keeps the plan in force."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from control.controller.membership import REPORT_AGE_S, WINDOW_S, ReportAges
from control.rollout.history import UNREAD_S, History
from schemas.effects import PLANS, REPORTS, Woke
from schemas.records import Plan
from tests.control_world import World, a_pipeline, a_profile, an_ingress_report


def a_world() -> World:
    return World(a_pipeline(), a_profile())


@pytest.mark.parametrize("silence_s", [2.0, 62.0, 600.0])
def test_control_app_without_any_reports_leaves_the_plan_in_force(silence_s: float) -> None:
    world = a_world().start("w0", "w1", "w2")
    world.run(1.0)
    before, heard = world.plan, dict(world.workers)
    world.workers.clear()
    world.ingress = False
    world.run(silence_s)
    assert world.plan == before
    world.workers, world.ingress = heard, True
    world.run(5.0)
    assert world.plan.leases == before.leases


def test_a_worker_that_is_gone_when_others_are_heard_again_is_lost() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.run(1.0)
    heard = dict(world.workers)
    world.workers.clear()
    world.ingress = False
    world.run(90.0)
    del heard["w2"]
    world.workers, world.ingress = heard, True
    world.run(5.0)
    assert set(world.leases()) == {"w0", "w1"}


@pytest.mark.parametrize("offset_s", [-3600.0, -3.0, 3.0, 3600.0])
def test_workers_whose_clocks_differ_from_the_control_apps_are_used_and_kept(
    offset_s: float,
) -> None:
    plain = World(a_pipeline(), a_profile())
    plain.start("w0", "w1", "w2")
    skewed = World(a_pipeline(), a_profile())
    skewed.tell(Woke())
    for _ in range(20):
        skewed.now = round(skewed.now + 0.2, 1)
        for name in ("w0", "w1", "w2"):
            worker = plain.workers[name]
            worker.plan = skewed.plans[-1] if skewed.plans else None
            report = worker.report(skewed.now)
            skewed.arrive(changed(report, sent_s=skewed.now + offset_s), REPORTS)
        skewed.tell(Woke())
    assert skewed.leases() == plain.leases()


def test_late_reports_do_not_count_as_current() -> None:
    ages = ReportAges()
    fast = an_ingress_report(sent_s=100.0)
    assert ages.age_s(fast, 103.0) == 0.0  # another clock or a slow path: indistinguishable
    assert ages.age_s(an_ingress_report(sent_s=101.0), 103.5) == 0.0
    assert ages.age_s(an_ingress_report(sent_s=102.0), 109.5) == 5.0


def test_clock_correction_does_not_make_reports_old() -> None:
    ages, worst = ReportAges(), 0.0
    for tick in range(5000):  # a thousand seconds, during which one clock falls behind by ten
        now = 1000.0 + tick * 0.2
        worst = max(worst, ages.age_s(an_ingress_report(sent_s=now - tick * 0.002), now))
    assert worst < 2 * WINDOW_S * 0.01 + 0.01


@pytest.mark.parametrize("silence_s", [5.0, 45.0, 61.0, 67.0, 600.0, 36_000.0])
def test_report_delayed_by_the_network_counts_as_old(silence_s: float) -> None:
    ages = ReportAges()
    assert ages.age_s(an_ingress_report(sent_s=100.0), 100.0) == 0.0
    healed_s = 100.0 + silence_s
    assert ages.age_s(an_ingress_report(sent_s=100.2), healed_s) > REPORT_AGE_S
    assert ages.age_s(an_ingress_report(sent_s=healed_s), healed_s) <= 0.0


@pytest.mark.parametrize("silence_s", [5.0, 45.0, 67.0, 600.0, 36_000.0])
def test_clock_correction_during_silence_does_not_make_reports_old(
    silence_s: float,
) -> None:
    ages = ReportAges()
    assert ages.age_s(an_ingress_report(sent_s=100.0), 100.0) == 0.0
    healed_s = 100.0 + silence_s
    fresh = an_ingress_report(sent_s=healed_s - 0.02 * silence_s)
    assert ages.age_s(fresh, healed_s) <= REPORT_AGE_S


def test_a_restarted_node_is_measured_anew() -> None:
    ages = ReportAges()
    report = an_ingress_report(sent_s=100.0)
    assert ages.age_s(report, 100.0) == 0.0
    again = changed(report, incarnation=report.incarnation + 1.0)
    assert ages.age_s(again, 150.0) == 0.0


@pytest.mark.parametrize("back_s", [-3600.0, 5.0, 3600.0])
def test_a_node_that_restarts_after_a_step_of_its_hosts_clock_is_heard_at_once(
    back_s: float,
) -> None:
    """After a step back its reports counted as old for up to a minute."""
    ages = ReportAges()
    report = changed(an_ingress_report(sent_s=10_000.0), incarnation=9_999.0)
    for second in range(100):
        assert ages.age_s(changed(report, sent_s=10_000.0 + second), 10_000.0 + second) == 0.0
    again = changed(report, incarnation=10_100.0 - back_s)
    for second in range(100, 200):
        sent_s = 10_000.0 + second - back_s
        assert ages.age_s(changed(again, sent_s=sent_s), 10_000.0 + second) == 0.0


def test_plan_followed_by_nodes_but_lost_on_the_topic_is_superseded() -> None:
    world = a_world().start("w0", "w1", "w2")
    world.run(1.0)
    followed: Plan = world.plan
    for _ in range(3):
        world.command("replan")
    lost = World(a_pipeline(), a_profile())
    lost.workers = {name: replace(worker) for name, worker in world.workers.items()}
    for worker in lost.workers.values():
        worker.plan = changed(followed, epoch=40)
    lost.now = world.now
    lost.arrive(changed(followed, epoch=2), PLANS)  # the newest plan still on the topic
    lost.tell(Woke())
    for _ in range(40):
        lost.now = round(lost.now + 0.1, 1)
        if round(lost.now * 10) % 2 == 0:
            for name in sorted(lost.workers):
                held = lost.workers[name]
                newest = max(lost.plans, key=lambda plan: plan.epoch, default=None)
                if newest and newest.epoch > 40:
                    held.plan = newest
                else:  # it rejects plans that are not newer
                    held.plan = changed(followed, epoch=40)
                lost.arrive(held.report(lost.now), REPORTS)
        lost.tell(Woke())
    assert lost.plan.epoch == 41
    assert "the plans topic has lost plan 40" in lost.plan.reason
    assert {worker.plan.epoch for worker in lost.workers.values() if worker.plan} == {41}


def test_lost_plans_are_noticed_where_nodes_follow_different_ones() -> None:
    """Each report of another one restarted the wait, and no plan reached the nodes."""
    history = History(a_pipeline())
    reports = [(7 + tick % 2, tick / 10) for tick in range(50)]
    assert [at_s for epoch, at_s in reports if history.lost(epoch, at_s)] == [0.1 + UNREAD_S]
    assert history.next_epoch == 9


def test_the_first_plan_has_an_epoch_above_those_that_nodes_follow() -> None:
    """Two plans of one epoch could give a slot two readers."""
    world = a_world().start("w0", "w1", "w2")
    world.run(1.0)
    followed = changed(world.plan, epoch=1)
    lost = World(a_pipeline(), a_profile())
    lost.workers = {name: replace(each, plan=followed) for name, each in world.workers.items()}
    lost.now = world.now
    lost.tell(Woke())
    lost.run(0.4)
    assert [plan.epoch for plan in lost.plans] == [2]
