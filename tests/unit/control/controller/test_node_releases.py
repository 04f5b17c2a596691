"""Nodes of several schema releases: plans use the lowest release that all of them read."""

from dataclasses import dataclass

from msgspec.structs import replace

from control.controller.node_releases import HOLD_S
from schemas.enumerations import PlanCause
from schemas.records import Report
from schemas.release import READS, RELEASE, UNDECLARED
from tests.control_world import FakeWorker, World, a_pipeline, a_profile


@dataclass
class Declaring(FakeWorker):
    """Return the report of a worker that declares the release it reads."""

    reads: int = RELEASE

    def report(self, now: float) -> Report:
        plain = super().report(now)
        return replace(plain, counts={**plain.counts, READS: float(self.reads)})


def a_world(*reads: int) -> World:
    world = World(a_pipeline(), a_profile())
    world.ingress = False  # its reports declare nothing
    world.start()
    world.workers = {f"w{i}": Declaring(f"w{i}", reads=each) for i, each in enumerate(reads)}
    world.run(4.0)
    return world


def test_the_first_plan_bears_the_release_that_every_node_reads() -> None:
    assert a_world(RELEASE, RELEASE, RELEASE).plan.release == RELEASE
    assert a_world(RELEASE, UNDECLARED, RELEASE).plan.release == 0


def test_nodes_without_a_declaration_read_the_last_release_before_declarations() -> None:
    world = World(a_pipeline(), a_profile()).start("w0", "w1", "w2")
    world.run(4.0)
    assert world.plan.release == 0


def test_a_node_of_an_earlier_release_makes_all_write_in_it_at_once() -> None:
    world = a_world(RELEASE, RELEASE, RELEASE)
    world.workers["w1"] = Declaring("w1", incarnation=5.0, reads=UNDECLARED)
    world.run(0.5)
    assert world.plan.release == 0
    (told,) = [plan for plan in world.plans if PlanCause.OTHER in plan.causes]
    assert f"w1 reads schema release {UNDECLARED} at most" in told.reason


def test_all_write_in_the_later_release_a_minute_after_the_last_old_node() -> None:
    world = a_world(RELEASE, UNDECLARED, RELEASE)
    world.workers["w1"] = Declaring("w1", incarnation=5.0)
    world.run(HOLD_S - 10.0)
    assert world.plan.release == 0
    world.run(30.0)
    assert world.plan.release == RELEASE


def test_a_new_control_app_goes_on_with_the_release_of_the_plan() -> None:
    # A frozen node of the old release may wake up: a control app that never heard it must not rise.
    world = a_world(RELEASE, UNDECLARED, RELEASE)
    world.restart_controller()
    world.workers["w1"] = Declaring("w1", incarnation=5.0, plan=world.plan)
    world.run(HOLD_S - 10.0)
    assert world.plan.release == 0
    world.run(30.0)
    assert world.plan.release == RELEASE
