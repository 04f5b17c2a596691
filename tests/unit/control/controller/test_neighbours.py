"""Several pipelines on one broker: how a control app treats the records of the others."""

from msgspec.structs import replace

from control.controller.control_state import NEIGHBOUR_S
from schemas.effects import COMMANDS, REPORTS
from schemas.records import Command
from tests.control_world import World, a_pipeline

NAMELESS = Command(id="c7", pipeline="", action="pause")


def a_world() -> World:
    return World(a_pipeline()).start("w0", "w1", "w2")


def hear_another(world: World) -> None:
    report = world.workers["w0"].report(world.now)
    world.arrive(replace(report, pipeline="words"), REPORTS)


def test_a_command_without_a_pipeline_is_for_the_only_one() -> None:
    world = a_world()
    world.arrive(NAMELESS, COMMANDS)
    world.run(1.0)
    assert [(result.id, result.ok) for result in world.results] == [("c7", True)]


def test_command_without_a_pipeline_is_ignored_with_several_pipelines() -> None:
    world = a_world()
    hear_another(world)
    world.arrive(NAMELESS, COMMANDS)
    world.run(1.0)
    assert [(result.id, result.ok, result.message) for result in world.results] == [
        ("c7", False, "the command names no pipeline, and postcode and words are up on this "
                      'broker; name one as "pipeline"')
    ]  # fmt: skip
    assert not world.plan.settings.paused


def test_stopped_pipeline_does_not_count_among_several() -> None:
    world = a_world()
    hear_another(world)
    world.run(NEIGHBOUR_S + 0.2)
    world.arrive(NAMELESS, COMMANDS)
    world.run(1.0)
    assert [result.ok for result in world.results] == [True]
