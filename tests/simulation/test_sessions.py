"""Sessions in virtual time, with the production controller, ingress, workers and egress."""

from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

import pytest

from schemas.effects import (
    COMMAND_RESULTS,
    PLANS,
    QUERIES,
    REPORTS,
    SESSIONS,
    Arrived,
)
from schemas.enumerations import NodeState, ReasonCode, SessionState
from schemas.pipeline import Policy, Task
from schemas.records import ANSWERED, Answer, Query, Report
from schemas.release import READS
from tests.session_world import EVERY_LINK, a_hand_made_plan, a_session_pipeline
from tests.simulation.session_system import LOAD_S, World


@pytest.fixture
def world() -> World:
    return World(links=EVERY_LINK)


def settings(answer: Answer) -> set[tuple[str, ...]]:
    return {tuple(hop.key for hop in path) for path in answer.paths}


def tiers(answer: Answer) -> set[str]:
    return {hop.worker for path in answer.paths for hop in path}


A_SETTINGS = {("scan/v@scale=1", "read/v@votes=1")}
B_SETTINGS = {("scan/v@scale=0.5", "read/w@votes=3")}


def two_sessions(world: World) -> None:
    world.command(1.0, "open-session", session="a", slo="500ms", plan=a_hand_made_plan(share=0.5))
    world.command(
        1.1, "open-session", session="b",
        plan=a_hand_made_plan(read="depot", votes=3, variant="w", scale=0.5, share=0.25),
    )  # fmt: skip


def test_every_answer_of_a_session_follows_its_own_query_plan(world: World) -> None:
    two_sessions(world)
    world.ask("a", 3.0, 6.0)
    world.ask("b", 3.0, 6.0)
    world.system.run(8.0)
    for name, expected in (("a", A_SETTINGS), ("b", B_SETTINGS)):
        answers = world.answers(name)
        assert len(answers) == 60
        assert {each.outcome for each in answers} == {"answered"}
        assert all(settings(each) == expected for each in answers)
        assert {each.session for each in answers} == {name}
        assert world.session(name).state is SessionState.SERVING
    assert {worker.split("-")[0] for each in world.answers("b") for worker in tiers(each)} == {
        "handheld", "depot",
    }  # fmt: skip
    # Each session has its own device on the tier of the sessions.
    own = [{w for each in world.answers(n) for w in tiers(each) if "handheld" in w} for n in "ab"]
    assert len(own[0]) == len(own[1]) == 1
    assert own[0] != own[1]


def wide() -> tuple[Task, ...]:
    """Return the tasks with slots for many devices."""
    return tuple(replace(task, slots=64) for task in a_session_pipeline().tasks)


def test_sixteen_sessions_on_shared_workers_follow_sixteen_plans() -> None:
    world = World({"handheld": 16, "depot": 2, "cloud": 2}, EVERY_LINK, tasks=wide())
    plans = {
        f"s{n}": plan for n, plan in enumerate(product((1, 0.5), "vw", (1, 3), ("depot", "cloud")))
    }
    for name, (scale, variant, votes, tier) in plans.items():
        plan = a_hand_made_plan(
            read=tier, votes=votes, variant=variant, share=0.25, scale=scale
        )  # fmt: skip
        world.command(1.0 + 0.01 * int(name[1:]), "open-session", session=name, plan=plan)
        world.ask(name, 5.0, 6.0)
    world.system.run(8.0)
    for name, (scale, variant, votes, tier) in plans.items():
        answers = world.answers(name)
        assert [each.outcome for each in answers] == [ANSWERED] * 20
        followed = {(f"scan/v@scale={scale:g}", f"read/{variant}@votes={votes}")}
        assert all(settings(each) == followed for each in answers)
        readers = {worker for each in answers for worker in tiers(each) if "read" in worker}
        assert {worker.split("-")[0] for worker in readers} == {tier}


def test_sessions_are_served_while_there_are_more_devices_than_slots() -> None:
    """The control app ended with an error, and again after each restart."""
    world = World({"handheld": 9, "depot": 0, "cloud": 1}, tasks=a_session_pipeline().tasks)
    world.command(1.0, "open-session", session="a", plan=a_hand_made_plan(share=0.5))
    world.ask("a", 3.0, 4.0)
    world.system.run(6.0)
    assert [each.outcome for each in world.answers("a")] == [ANSWERED] * 20


def switched_s(sessions: int) -> float:
    """Return the seconds until the last of some sessions serves, each on its own devices."""
    world = World({"handheld": sessions, "depot": 0, "cloud": sessions}, tasks=wide())
    for number in range(sessions):
        opened_s = 2.0 + 1e-3 * number
        world.command(opened_s, "open-session", session=f"s{number}", plan=a_hand_made_plan())
    world.system.run(8.0)
    return max(world.session(f"s{n}").serving_s or inf for n in range(sessions))


def test_six_sessions_load_their_plans_at_the_same_time() -> None:
    """Compass, Section 6.3: sessions migrate in parallel."""
    assert LOAD_S < switched_s(6) < 2 * switched_s(1)


def test_the_deadline_is_the_sessions_own(world: World) -> None:
    two_sessions(world)
    world.ask("a", 3.0, 3.5)
    world.ask("b", 3.0, 3.5)
    world.system.run(5.0)
    for name, slo_s in (("a", 0.5), ("b", 1.0)):
        spans = {round(each.deadline_s - each.created_s, 6) for each in world.answers(name)}
        assert spans == {slo_s}


def test_queries_are_refused_until_the_settings_are_loaded(world: World) -> None:
    two_sessions(world)
    world.ask("a", 1.05, 3.0)
    world.system.run(5.0)
    answers = sorted(world.answers("a"), key=lambda each: each.created_s)
    early = [each for each in answers if each.outcome == "refused"]
    assert early
    assert {each.reason_code for each in early} == {ReasonCode.NO_WORKER, ReasonCode.BAD_INPUT} or (
        {each.reason_code for each in early} == {ReasonCode.NO_WORKER}
    )
    rest = answers[len(early) :]
    assert {each.outcome for each in rest} == {"answered"}
    assert rest[0].created_s < 1.0 + LOAD_S + 1.0


def test_a_query_without_a_session_or_of_an_unknown_one_is_refused(world: World) -> None:
    two_sessions(world)
    world.ask("nobody", 3.0, 3.2)
    world.system.input(3.0, QUERIES, 0, Query(payload="scan", id="bare-1"))
    world.system.run(5.0)
    refused = [*world.answers("nobody"), *world.answers("bare")]
    assert {each.outcome for each in refused} == {"refused"}
    assert {each.reason_code for each in refused} == {ReasonCode.BAD_INPUT}
    assert "names no session" in world.answers("bare")[0].reason


def test_sessions_reported_as_serving_are_in_the_plan_while_devices_are_full() -> None:
    """A plan in which a device holds more than fits is refused; draining sessions count, too."""
    world = World({"handheld": 4, "depot": 0, "cloud": 1})
    for number in range(8):
        name, opens_s = f"s{number}", 1.0 + 2.0 * number
        world.command(opens_s, "open-session", session=name, plan=a_hand_made_plan(share=0.5))
        world.command(opens_s + 5.0, "close-session", session=name)
    served: set[str] = set()
    before: set[str] = set()
    for tenth in range(10, 260):
        world.system.run(tenth / 10)
        newest = {each.id: each.state for each in world.records(SESSIONS)}
        told = {name for name, state in newest.items() if state is SessionState.SERVING}
        assert told & before <= {each.session for each in world.plan().sessions if each.admits}
        before, served = told, served | told
    assert len(served) >= 6


def test_a_closed_session_finishes_its_queries_and_leaves_nothing(world: World) -> None:
    two_sessions(world)
    world.ask("a", 3.0, 6.0)
    world.ask("b", 3.0, 6.0)
    world.command(4.0, "close-session", session="a")
    world.system.run(20.0)
    answers = sorted(world.answers("a"), key=lambda each: each.created_s)
    assert {each.outcome for each in answers} == {"answered", "refused"}
    last = max(each.created_s for each in answers if each.outcome == "answered")
    assert last == pytest.approx(4.0, abs=0.1)
    assert {each.outcome for each in world.answers("b")} == {"answered"}
    assert {each.session for each in world.plan().sessions} == {"b"}


def test_a_session_whose_device_dies_takes_another_one() -> None:
    world = World({"handheld": 1, "depot": 0, "cloud": 2})
    world.command(1.0, "open-session", session="a", plan=a_hand_made_plan(share=0.5))
    world.ask("a", 3.0, 8.0)
    world.system.at(
        5.0, lambda: [world.system.kill(f"cloud-0-{task}") for task in ("scan", "read")]
    )
    world.system.run(10.0)
    answers = world.answers("a")
    assert len(answers) == 100
    assert all(settings(each) == A_SETTINGS for each in answers if each.outcome == "answered")
    bad = [each for each in answers if each.outcome != "answered" or each.late]
    assert all(4.5 < each.created_s < 5.0 + 0.8 + LOAD_S + 0.7 for each in bad)
    after = [each for each in answers if each.created_s > 7.0]
    assert {worker for each in after for worker in tiers(each)} == {
        "handheld-0-scan",
        "cloud-1-read",
    }
    assert world.session("a").state is SessionState.SERVING


def test_a_session_waits_for_a_device_and_gets_it_when_another_closes() -> None:
    world = World({"handheld": 2, "depot": 0, "cloud": 1})
    world.command(1.0, "open-session", session="a", plan=a_hand_made_plan())
    world.command(1.1, "open-session", session="b", plan=a_hand_made_plan())
    world.command(6.0, "close-session", session="a")
    world.system.run(5.0)
    assert world.session("b").state is SessionState.WAITING
    assert "no devices are free" in world.session("b").reason
    world.system.run(6.2)
    assert world.session("b").state is SessionState.WAITING  # the queries of "a" still run
    world.ask("b", 12.0, 13.0)
    world.system.run(15.0)
    assert world.session("b").state is SessionState.SERVING
    assert [each.session for each in world.plan().sessions] == ["b"]
    assert {each.outcome for each in world.answers("b")} == {"answered"}


@pytest.mark.parametrize("killed_s", [4.01, 4.2, 4.8])
def test_a_session_that_closes_does_so_after_the_control_app_was_killed(
    world: World, killed_s: float
) -> None:
    two_sessions(world)
    world.ask("b", 3.0, 9.0)
    world.command(4.0, "close-session", session="a")
    world.system.at(killed_s, lambda: world.system.kill("control"))
    world.system.at(killed_s + 0.3, lambda: world.system.start("control", Restored(world)))
    world.system.run(20.0)
    assert {each.outcome for each in world.answers("b")} == {"answered"}
    assert {each.session for each in world.plan().sessions} == {"b"}


def test_sessions_outlive_the_control_app(world: World) -> None:
    two_sessions(world)
    world.ask("a", 3.0, 9.0)

    def again() -> None:
        world.system.start("control", Restored(world))

    world.system.at(4.0, lambda: world.system.kill("control"))
    world.system.at(5.0, again)
    world.command(7.0, "close-session", session="b")
    world.system.run(20.0)
    assert {each.outcome for each in world.answers("a")} == {"answered"}
    assert {each.session for each in world.plan().sessions} == {"a"}
    assert world.results()["close-session"].ok


class Restored:
    """A controller that first reads its topics back, as its drivers do."""

    def __init__(self, world: World) -> None:
        self._world, self._controller = world, world.controller()
        self._began = False

    def handle(self, event: Any, now: float) -> Any:
        if not self._began:
            self._began = True
            for topic in (PLANS, COMMAND_RESULTS, SESSIONS):
                for offset, record in enumerate(self._world.records(topic)):
                    self._controller.handle(Arrived(record, topic, 0, offset, now), now)
        return self._controller.handle(event, now)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"session": "a b"}, "no id of a session"),
        ({"session": "x", "slo": "0ms"}, "above 0"),
        ({"session": "x", "accuracy": "2"}, "from 0 to 1"),
        ({"session": "x", "colour": "red"}, "no argument 'colour'"),
        ({"session": "x", "plan": "{"}, "no JSON"),
        ({"session": "x", "plan": a_hand_made_plan(read="handheld")}, "may not run on 'handheld'"),
        ({"session": "x", "plan": a_hand_made_plan(votes=2)}, "its options are 1, 3"),
        ({"session": "x", "plan": a_hand_made_plan(share=0.3)}, "write 0.25 to 1"),
    ],
)
def test_a_command_that_cannot_be_carried_out_says_why(
    world: World, arguments: dict[str, str], said: str
) -> None:
    world.command(1.0, "open-session", **arguments)
    world.system.run(3.0)
    result = world.results()["open-session"]
    assert not result.ok
    assert said in result.message


def test_no_session_opens_while_a_node_of_a_release_without_sessions_runs(world: World) -> None:
    older = Report(
        node="egress-2", role="egress", pipeline="p", epoch=0, incarnation=0.0, sent_s=0.5,
        state=NodeState.READY, counts={READS: 6.0},
    )  # fmt: skip
    world.system.input(0.5, REPORTS, 0, older)
    world.command(1.0, "open-session", session="a", plan=a_hand_made_plan())
    world.system.run(3.0)
    result = world.results()["open-session"]
    assert not result.ok
    assert "a node of an older release runs, which knows no sessions; upgrade" in result.message
    world.command(65.0, "open-session", session="a", plan=a_hand_made_plan())
    world.system.run(67.0)
    assert world.results()["open-session"].ok


def test_a_session_serves_again_after_another_policy_was_in_force() -> None:
    policies = (Policy(name="compass", kind="compass"), Policy(name="static"))
    world = World(policies=policies)
    world.command(1.0, "open-session", session="a", plan=a_hand_made_plan())
    world.ask("a", 5.0, 6.0)
    world.command(7.0, "apply-policy", policy="static")
    world.ask("b", 15.0, 16.0)
    world.command(17.0, "apply-policy", policy="compass")
    world.ask("a", 25.0, 26.0)
    world.system.run(30.0)
    assert {each.outcome for each in world.answers("b")} == {ANSWERED}
    assert [each.outcome for each in world.answers("a")] == [ANSWERED] * 40


def test_a_session_opened_twice_is_refused(world: World) -> None:
    two_sessions(world)
    world.command(2.0, "open-session", session="a", plan=a_hand_made_plan())
    world.system.run(3.0)
    assert "open already" in world.results()["open-session"].message


@pytest.mark.parametrize(("ageing_s", "first"), [(60.0, "heavy"), (1.0, "light")])
def test_the_weight_of_a_session_that_waits_grows_as_the_policy_says(
    ageing_s: float, first: str
) -> None:
    policy = Policy(name="compass", kind="compass", options={"ageing": ageing_s})
    world = World({"handheld": 3, "depot": 1, "cloud": 1}, policies=(policy,))
    plan = a_hand_made_plan(read="cloud")  # the whole device
    world.command(1.0, "open-session", session="present", plan=plan)
    world.command(2.0, "open-session", session="light", plan=plan)
    world.command(9.5, "open-session", session="heavy", weight="2", plan=plan)
    world.command(10.0, "close-session", session="present")
    world.system.run(20.0)
    states = {name: world.session(name).state for name in ("light", "heavy")}
    assert states == {
        name: SessionState.SERVING if name == first else SessionState.WAITING for name in states
    }
