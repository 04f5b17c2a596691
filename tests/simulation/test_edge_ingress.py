"""An ingress at the edge, in virtual time, runs its leading tasks in its own process."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.effects import COMMANDS, QUERIES, REPORTS, Arrived, Deliver, Effect, Event
from schemas.records import ANSWERED, Answer, Command
from tests.session_world import EVERY_LINK, a_hand_made_plan
from tests.simulation.edge_system import EDGE, EDGE_PARTITIONS, INGRESS, EdgeWorld


class Draining:
    """A node that makes the ingress drain, like SIGTERM."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        drain = Command(id="", pipeline="p", action="drain", arguments={})
        return [Deliver(INGRESS, Arrived(drain, COMMANDS, 0, -1, now))]


def opened(**changes: object) -> EdgeWorld:
    world = EdgeWorld(**changes)
    world.command(1.0, "open-session", session="cam", slo="500ms", plan=a_hand_made_plan())
    return world


def asked(world: EdgeWorld, from_s: float, upto_s: float, qps: float = 20.0) -> list[str]:
    count = int((upto_s - from_s) * qps)
    return [world.ask_at(n % 2, "cam", from_s + n / qps) for n in range(count)]


def workers(answers: list[Answer]) -> set[str]:
    return {hop.worker for each in answers for path in each.paths for hop in path}


def test_only_the_output_of_the_leading_task_crosses_the_broker() -> None:
    world = opened()
    names = asked(world, 3.0, 6.0)
    world.system.run(8.0)
    answers = world.answers("cam")
    assert [each.outcome for each in answers] == [ANSWERED] * len(names)
    assert f"{EDGE}-scan" in workers(answers)
    assert world.sent("scan") == []
    assert {item.value for each in world.sent("read") for item in each.items} == {"scan"}


def test_offsets_are_committed_once_all_work_has_left() -> None:
    world = opened()
    asked(world, 3.0, 6.0)
    world.system.run(8.0)
    ends, committed = world.system.ends(QUERIES), world.system.committed(QUERIES)
    assert {p: committed[p][0] for p in EDGE_PARTITIONS} == {p: ends[p] for p in EDGE_PARTITIONS}


def test_a_query_in_another_ingresss_partition_is_served_at_its_sessions_edge() -> None:
    world = opened()
    name = world.ask_at(2, "cam", 3.0)  # a partition of the other ingress
    world.system.run(5.0)
    assert [(each.id, each.outcome) for each in world.answers("cam")] == [(name, ANSWERED)]
    assert len(world.sent("scan")) == 1


def test_another_session_at_the_edge_goes_over_the_broker() -> None:
    world = opened(links=EVERY_LINK)
    world.command(
        1.1, "open-session", session="b", slo="500ms", plan=a_hand_made_plan(read="depot")
    )
    name = world.ask_at(0, "b", 4.0)
    world.system.run(6.0)
    answers = world.answers("b")
    assert [(each.id, each.outcome) for each in answers] == [(name, ANSWERED)]
    assert not any(worker.startswith(EDGE) for worker in workers(answers))
    assert len(world.sent("scan")) == 1


def warnings(world: EdgeWorld) -> set[str]:
    return {each.error for each in world.records(REPORTS) if each.node == INGRESS}


def test_an_ingress_says_so_if_the_plan_of_its_session_begins_elsewhere() -> None:
    world = EdgeWorld(links=EVERY_LINK)
    plan = a_hand_made_plan(scan="depot")
    world.command(1.0, "open-session", session="cam", slo="500ms", plan=plan)
    name = world.ask_at(0, "cam", 3.0)
    world.system.run(5.0)
    assert [(each.id, each.outcome) for each in world.answers("cam")] == [(name, ANSWERED)]
    assert len(world.sent("scan")) == 1
    (said,) = warnings(world) - {""}
    assert said.startswith("the plan of session 'cam' begins on depot-0, so its inputs leave here")


def test_an_ingress_whose_session_begins_on_its_device_reports_no_warning() -> None:
    world = opened()
    world.system.run(3.0)
    assert warnings(world) == {""}


@pytest.mark.parametrize("at_s", [4.0, 4.0075, 4.013])
def test_a_killed_edge_runs_the_leading_task_again_and_each_query_has_one_answer(
    at_s: float,
) -> None:
    world = opened()
    names = asked(world, 3.0, 6.0, qps=100.0)
    world.system.at(at_s, world.kill_edge)
    world.system.at(at_s + 0.1, world.start_edge)
    world.system.run(12.0)
    assert sorted(each.id for each in world.answers("cam")) == sorted(names)


def test_work_of_a_slot_that_the_edge_gives_up_is_sent_to_the_broker() -> None:
    world = opened()
    names = asked(world, 3.0, 6.0, qps=100.0)
    world.system.run(4.0)
    for name in world.edge():
        if name != INGRESS:
            world.system.retire(name, 5.0, lambda: None)
    world.system.run(12.0)
    answers = world.answers("cam")
    assert sorted(each.id for each in answers) == sorted(names)
    assert sum(each.outcome == ANSWERED for each in answers) >= 100


def test_an_edge_that_drains_reads_no_further_and_commits_what_it_has_read() -> None:
    world = opened()
    asked(world, 3.0, 6.0, qps=100.0)
    world.system.run(4.0)
    world.system.start("signal", Draining())
    world.system.run(8.0)
    committed = {p: place for p, (place, _) in world.system.committed(QUERIES).items()}
    noticed = sum(committed[p] for p in EDGE_PARTITIONS)
    assert noticed < 300
    assert len(world.answers("cam")) == noticed


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(3.0, 6.0)), min_size=1, max_size=60),
    st.lists(st.tuples(st.floats(1.5, 6.5), st.floats(0.0, 0.5)), max_size=3),
    st.booleans(),
)
def test_every_query_ends_once_whatever_dies(
    queries: list[tuple[int, float]], deaths: list[tuple[float, float]], spare: bool
) -> None:
    world = opened(counts={"handheld": int(spare), "depot": 1, "cloud": 1})
    for number, (partition, at_s) in enumerate(queries):
        world.ask_at(partition, "cam", at_s, payload=f"scan {number}")
    for at_s, away_s in deaths:
        world.system.at(at_s, world.kill_edge)
        world.system.at(at_s + away_s, world.start_edge)
    world.system.run(14.0)
    answers = [each.origin for each in world.answers("cam")]
    assert len(answers) == len(set(answers)) == len(queries)
    committed = {p: place for p, (place, _) in world.system.committed(QUERIES).items()}
    assert committed == {p: end for p, end in world.system.ends(QUERIES).items() if end}
