"""Reports without news call for nothing before the next tick, and a loss is noticed at once."""

import pytest

from control.controller.controller import JUST_S, TICK_S
from control.controller.membership import DEAD_AFTER_S
from schemas.effects import REPORTS, Arrived, Wake, Woke
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


def test_a_silent_worker_is_looked_for_when_its_time_is_up_not_at_the_next_tick() -> None:
    world = a_world()
    heard_s = world.now
    w2 = world.workers.pop("w2")
    w2_s = heard_s + 0.03  # between two ticks
    world.controller.handle(Arrived(w2.report(w2_s), REPORTS, 0, 0, w2_s), w2_s)
    world.run(0.7)
    world.now = heard_s + DEAD_AFTER_S  # the last tick before its time is up
    (wake,) = [e for e in world.controller.handle(Woke(), world.now) if isinstance(e, Wake)]
    assert wake.at_s == pytest.approx(w2_s + DEAD_AFTER_S + JUST_S)
    assert wake.at_s < world.now + TICK_S
    world.now = wake.at_s
    before = len(world.plans)
    world.tell(Woke())
    assert len(world.plans) > before
    assert "w2" not in world.leases()
