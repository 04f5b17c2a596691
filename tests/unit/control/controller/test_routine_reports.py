"""Reports without news need no work before the next tick, and a loss is noticed at once."""

from typing import Any

import pytest
from msgspec.structs import replace

from control.controller.controller import FEW, JUST_S, SPACING_S, TICK_S
from control.controller.membership import DEAD_AFTER_S
from schemas.effects import REPORTS, Arrived, Heartbeat, Heartbeats, Send, Solve, Wake, Woke
from tests.control_world import World, a_pipeline


def a_world() -> World:
    world = World(a_pipeline(locate={"net": 1}, read={"forest": 2})).start("w0", "w1", "w2")
    world.run(3.0)
    return world


def test_a_report_without_news_has_no_effect_and_one_with_news_has() -> None:
    world = a_world()
    world.tell(Woke())
    routine = Arrived(world.workers["w0"].report(world.now), REPORTS, 0, 0, world.now)
    assert world.controller.handle(routine, world.now) == []
    world.workers["w0"].incarnation = world.now  # it has started anew
    restarted = Arrived(world.workers["w0"].report(world.now), REPORTS, 0, 0, world.now)
    assert world.controller.handle(restarted, world.now) != []


def test_news_of_many_workers_is_batched_for_at_most_the_duration_of_a_review() -> None:
    world = World(a_pipeline(locate={"net": 1}, read={"forest": 2}))
    world.start(*(f"w{number:03d}" for number in range(2 * FEW)))
    world.run(3.0)
    world.tell(Woke())
    before = world.controller.handle(news_of(world, "w000"), world.now)
    assert before == []  # a review has just ended
    after_s = world.now + FEW * SPACING_S
    assert world.controller.handle(news_of(world, "w001"), after_s) != []


def news_of(world: World, name: str) -> Arrived:
    """Return the first report of a restarted worker."""
    world.workers[name].incarnation = world.now
    return Arrived(world.workers[name].report(world.now), REPORTS, 0, 0, world.now)


def test_a_silent_worker_is_looked_for_when_its_time_is_up_not_at_the_next_tick() -> None:
    world = a_world()
    heard_s = world.now
    w2 = world.workers.pop("w2")
    w2_s = heard_s + 0.03  # between two ticks
    world.controller.handle(Arrived(w2.report(w2_s), REPORTS, 0, 0, w2_s), w2_s)
    world.run(0.7)
    world.now = heard_s + DEAD_AFTER_S  # the last tick before its timeout
    (wake,) = [e for e in world.controller.handle(Woke(), world.now) if isinstance(e, Wake)]
    assert wake.at_s == pytest.approx(w2_s + DEAD_AFTER_S + JUST_S)
    assert wake.at_s < world.now + TICK_S
    world.now = wake.at_s
    before = len(world.plans)
    world.tell(Woke())
    assert len(world.plans) > before
    assert "w2" not in world.leases()


def beat_of(world: World, name: str, **fields: Any) -> Heartbeat:
    """Return the heartbeat of an unchanged worker."""
    beat = Heartbeat("postcode", name, world.workers[name].incarnation, world.now)
    return replace(beat, **fields)


def after_heartbeats(**fields: Any) -> World:
    """Return a world in which w2 sends only heartbeats for two seconds; the others send reports."""
    world = a_world()
    w2 = world.workers.pop("w2")
    for _ in range(20):
        world.run(0.1)
        world.workers["w2"] = w2
        beat = beat_of(world, "w2", **fields)
        del world.workers["w2"]
        world.controller.handle(Heartbeats((beat,)), world.now)
    return world


def test_heartbeats_keep_a_worker_alive() -> None:
    assert "w2" in after_heartbeats().leases()


@pytest.mark.parametrize(
    "fields", [{"incarnation": 1.0}, {"pipeline": "other"}, {"worker": "w9"}, {"sent_s": 1000.0}]
)
def test_late_heartbeats_and_those_of_another_process_or_pipeline_are_ignored(
    fields: dict[str, Any],
) -> None:
    assert "w2" not in after_heartbeats(**fields).leases()


def test_slots_are_handed_on_before_anything_else_is_decided() -> None:
    world = a_world()
    world.solving = False
    del world.workers["w2"]
    world.run(DEAD_AFTER_S - 0.1)
    effects = world.controller.handle(Woke(), world.now + 0.2)
    kinds = [type(effect) for effect in effects]
    assert kinds.count(Send) == 1
    assert Solve not in kinds
    assert Wake(world.now + 0.2) in effects
    world.tell(Woke())
    assert world.solves
