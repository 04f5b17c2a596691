"""Faults that no query, or hardly one, may notice: nothing else runs beside these tests.

Each test prints its measurements.
"""

import time
from collections.abc import Iterator

import pytest

from benchmarks.received_answers import in_time
from benchmarks.rig import Rig
from benchmarks.squares import PIPELINE
from headrace.config.topology import Role
from tests.integration.rigs import RATE, bring_back, each_ended_once, tell, under_load, workers_of

pytestmark = [pytest.mark.kafka, pytest.mark.alone]


@pytest.fixture(scope="module")
def running(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(broker, tmp_path_factory.mktemp("faults"), PIPELINE)
    try:
        print(f"up after {rig.up():.1f} s")
        rig.offer(RATE)
        rig.pass_time(2)
        rig.settle()
        yield rig
    finally:
        rig.close()


@pytest.fixture
def rig(running: Rig) -> Iterator[Rig]:
    yield from under_load(running, RATE)


def back_after_s(rig: Rig, since_s: float) -> float:
    """Return the seconds from then until the first good answer to a query sent later."""
    rig.until(lambda: any(in_time(a) for a in rig.answers.since(since_s)), "a good answer")
    return min(a.answered_s for a in rig.answers.since(since_s) if in_time(a)) - since_s


def test_a_killed_worker_with_a_second_worker_of_its_variant(rig: Rig) -> None:
    """Every query has items for both workers."""
    victim, _ = workers_of(rig, "square")
    epoch = rig.plan.epoch
    at_s = rig.kill(victim)
    handed_s = rig.until(lambda: rig.plan.epoch > epoch, "the plan without it")
    good_s = back_after_s(rig, at_s)
    rig.pass_time(1)
    restored_s = bring_back(rig, victim)
    each_ended_once(rig)
    tell(
        "one worker of two killed", rig, at_s, f"new plan after {handed_s:.2f} s",
        f"good answers were back after {good_s:.2f} s",
        f"restarted, it served again after {restored_s:.2f} s",
    )  # fmt: skip
    assert good_s < 1.0


def test_the_control_app_killed_under_load(rig: Rig) -> None:
    epoch = rig.plan.epoch
    at_s = rig.kill("control")
    rig.pass_time(2)
    restarted_s = time.time()
    rig.start("control")
    result = rig.command("replan")
    in_charge_s = time.time() - restarted_s
    rig.pass_time(1)
    each_ended_once(rig)
    found = tell("control app killed", rig, at_s, f"restarted, in charge after {in_charge_s:.1f} s")
    assert result.ok
    epochs = [plan.epoch for plan in rig.plans]
    assert epochs == sorted(set(epochs))
    assert rig.plans[-1].epoch >= epoch
    assert all(in_time(a) for a in found)


def test_a_control_app_that_was_frozen_does_not_revert_the_others_to_an_old_plan(rig: Rig) -> None:
    rig.roles["control-2"] = Role("control-2", "control")
    rig.start("control-2")
    assert rig.command("replan").ok
    at_s = time.time()
    rig.freeze("control")
    assert rig.command("set-slo", slo="2s").ok
    taken_s = time.time() - at_s
    rig.thaw("control")
    rig.pass_time(3)  # its next heartbeat reveals the replacement
    assert rig.command("set-slo", slo="1s").ok
    assert rig.stop("control-2") == 0
    del rig.roles["control-2"]
    assert rig.command("replan").ok
    each_ended_once(rig)
    tell("the first of two control apps stopped", rig, at_s, f"a command took {taken_s:.1f} s")
    epochs = [plan.epoch for plan in rig.plans]
    assert epochs == sorted(set(epochs))
    assert all(followed == sorted(followed) for followed in rig.reports.epochs.values())
    answered = [result.id for result in rig.results]
    assert sorted(answered) == sorted(set(answered))
    assert all(in_time(answer) for answer in rig.answers.since(at_s))
