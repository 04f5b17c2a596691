"""Random schedules of faults keep the invariants, and the checker detects violations."""

from dataclasses import replace

import pytest

from benchmarks.schedules.__main__ import again, tried
from benchmarks.schedules.fault_schedule import (
    KINDS,
    POLICIES,
    ROOT_POLICIES,
    Schedule,
    ScheduledFault,
    drawn,
    from_json,
    reduced,
)
from benchmarks.schedules.schedule_invariants import Violated
from benchmarks.schedules.schedule_world import World, making_of, play
from schemas.effects import COMPLETIONS
from streams.topics import physical

QUIET = Schedule(seed=1, queries=30, fan_out=2, slo_s=4.0, faults=())


def a_fault(kind: str, target: str, at_s: float = 4.0, **changes: float) -> ScheduledFault:
    return replace(ScheduledFault(kind=kind, target=target, at_s=at_s, for_s=0.5), **changes)


@pytest.mark.thorough
@pytest.mark.parametrize("index", range(30))
def test_a_drawn_schedule_keeps_every_invariant(index: int) -> None:
    one = tried(drawn(20261122, index))
    assert one.error == "", again(one.schedule)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "dispatchers", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2))]
)
def test_without_faults_every_query_has_its_answer(dispatchers: int, policy: str) -> None:
    played = play(replace(QUIET, policy=policy, dispatchers=dispatchers))
    assert played.queries == 30
    assert played.restarts == played.refused == played.went_back == 0


@pytest.mark.parametrize("policy", ROOT_POLICIES)
def test_without_faults_a_dispatching_ingress_holds_nothing_in_the_end(policy: str) -> None:
    schedule = replace(QUIET, policy=policy, rooted=True)
    world = World(schedule, making_of(schedule))
    played = world.play()
    assert played.queries == 30
    assert played.restarts == played.refused == played.went_back == 0
    completions = physical("p", COMPLETIONS)
    written = sum(world.broker.end(place) for place in world.broker.places(completions))
    assert (written > 0) == (policy != "static")


def test_the_policy_of_a_pipeline_that_ingress_dispatches_may_change_under_load() -> None:
    changes = tuple(
        a_fault("policy", policy, at_s)
        for policy, at_s in (("static", 2.0), ("fcfs", 3.0), ("static", 4.0), ("kairos", 5.0))
    )
    played = play(replace(QUIET, queries=100, policy="kairos", rooted=True, faults=changes))
    assert played.queries == 100
    assert played.outcomes.keys() <= {"answered", "failed"}


@pytest.mark.parametrize("target", ["egress-0", "ingress-0", "w1", "dispatcher-read-0"])
def test_a_second_instance_of_a_living_role_is_refused(target: str) -> None:
    played = play(replace(QUIET, dispatchers=1, faults=(a_fault("second", target),)))
    assert played.refused == 1


def test_a_third_of_the_schedules_has_dispatchers_which_faults_hit() -> None:
    every = [drawn(7, index) for index in range(200)]
    some = [one for one in every if one.dispatchers]
    hit = [fault for one in some for fault in one.faults if "dispatcher" in fault.target]
    assert 40 < len(some) < 80
    assert {"kill", "freeze", "frozen and replaced", "second"} <= {fault.kind for fault in hit}
    assert all(from_json(one.to_json()) == one for one in some)


def test_a_fifth_of_the_schedules_has_an_ingress_that_dispatches_which_faults_hit() -> None:
    every = [drawn(7, index) for index in range(300)]
    some = [one for one in every if one.rooted]
    hit = [f.kind for one in some for f in one.faults if f.target == "ingress-0"]
    assert 40 < len(some) < 80
    assert {"kill", "freeze", "frozen and replaced", "second", "cut"} <= set(hit)
    assert {one.policy for one in some} == set(ROOT_POLICIES)
    assert not any(one.dispatchers for one in some)
    assert all(from_json(one.to_json()) == one for one in some)


@pytest.mark.thorough
def test_the_checker_sees_an_egress_that_forgets_its_answers() -> None:
    killed = tuple(a_fault("kill", "egress-0", at_s) for at_s in (3.0, 4.0, 5.0, 6.0))
    with pytest.raises(Violated, match="has two answers"):
        play(replace(QUIET, queries=200, faults=killed), forgetful=True)
    assert play(replace(QUIET, queries=200, faults=killed)).queries == 200


def test_the_checker_sees_commits_before_their_sends_are_confirmed() -> None:
    muted = (a_fault("mute", "ingress-0", 3.0, for_s=4.0), a_fault("kill", "ingress-0", 5.0))
    slow = (a_fault("slow", "ingress-0", 2.0, for_s=5.0, amount=0.4),)
    schedule = replace(QUIET, queries=100, faults=(*slow, *muted))
    with pytest.raises(Violated, match="of which egress has no notice"):
        play(schedule, eager=True)
    assert play(schedule).queries == 100


REPLACED = {
    "cut off": (a_fault("cut and replaced", "egress-0", 3.0, for_s=6.0, amount=0.5),),
    "frozen": (a_fault("frozen and replaced", "egress-0", 3.0, for_s=4.0, amount=0.5),),
    "killed with sends under way": (
        a_fault("slow", "egress-0", 2.0, for_s=2.0, amount=0.4),
        a_fault("late kill", "egress-0", 3.4, for_s=0.1, amount=1.5),
    ),
}


def two_answers(faults: tuple[ScheduledFault, ...], **mistake: bool) -> None:
    """An egress with the mistake answers a query twice under these faults; ours does not."""
    schedule = replace(QUIET, queries=100, fan_out=0, faults=faults)
    with pytest.raises(Violated, match="has two answers"):
        play(schedule, **mistake)
    assert play(schedule).queries == 100


@pytest.mark.thorough
@pytest.mark.parametrize("how", REPLACED)
def test_the_checker_sees_an_egress_that_writes_without_a_lease(how: str) -> None:
    two_answers(REPLACED[how], careless=True)


def test_the_checker_sees_an_egress_that_mistakes_a_refused_answer_for_an_unwritten_one() -> None:
    """Its answers arrive, the confirmations do not, and the repetition comes after the lease."""
    slow = a_fault("slow", "egress-0", 2.0, for_s=3.0, amount=0.2)
    deaf = a_fault("deaf", "egress-0", 3.0, for_s=4.0)
    two_answers((slow, deaf), trusting=True)


FROZEN = {
    "egress dies": (
        a_fault("replica", "results", 3.0, for_s=6.0),
        a_fault("kill", "egress-0", 4.0, for_s=0.1),
    ),
    "egress lives": (a_fault("replica", "results", 3.0, for_s=6.0),),
}


@pytest.mark.thorough
@pytest.mark.parametrize("how", FROZEN)
def test_the_checker_sees_an_egress_that_reads_back_what_a_frozen_replica_hides(how: str) -> None:
    """The answers are written, but neither confirmed nor readable until the replica is dropped."""
    two_answers(FROZEN[how], hasty=True)


def test_a_failing_schedule_is_reduced_to_what_makes_it_fail() -> None:
    faults = tuple(a_fault(kind, "w1") for kind in sorted(KINDS))
    schedule = replace(QUIET, faults=faults)

    def fails(one: Schedule) -> bool:
        return {"kill", "cut"} <= {fault.kind for fault in one.faults} and one.queries > 3

    small = reduced(schedule, fails)
    assert {fault.kind for fault in small.faults} == {"kill", "cut"}
    assert small.queries == 7


def test_the_printed_command_repeats_a_schedule() -> None:
    schedule = drawn(7, 3)
    assert from_json(schedule.to_json()) == schedule
    assert schedule.to_json() in again(schedule)
