"""Faults under load: every query still gets exactly one answer.

Each test prints its measurements. Roles restart as under ``headrace up``, half a second after they
died.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.received_answers import ends, in_time, recovered_s
from benchmarks.rig import Rig
from benchmarks.squares import PIPELINE, right
from headrace.broker import local_broker as local
from headrace.config.topology import Role
from schemas.records import Answer
from tests.integration.rigs import check_one_answer_each, under_load

pytestmark = [pytest.mark.kafka, pytest.mark.alone]

RATE = 50.0
UP_PAUSE_S = 0.5  # headrace/cluster/supervisor.py: pause before the first restart


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


def workers_of(rig: Rig, task: str) -> list[str]:
    return [lease.worker for lease in rig.plan.leases if lease.task == task]


def bring_back(rig: Rig, name: str) -> float:
    """Restart a role as `up` does; return the seconds from its death until all roles serve."""
    rig.pass_time(UP_PAUSE_S)
    rig.start(name)
    return UP_PAUSE_S + rig.until(rig.serves, f"{name} to be back")


def each_ended_once(rig: Rig) -> None:
    """Check that every query of the test so far has exactly one answer."""
    check_one_answer_each(rig)
    assert [
        a.id for a in rig.answers if in_time(a) and a.result != right(int(rig.asked[a.id].payload))
    ] == []


def tell(what: str, rig: Rig, since_s: float, *more: str) -> list[Answer]:
    """Print the outcomes of the queries sent since then."""
    found = rig.answers.since(since_s)
    last_s = recovered_s(found, since_s)
    parts = [ends(found), f"the last not in time was made {last_s:.2f} s after", *more]
    print(f"\n{what}: {'; '.join(parts)}")
    return found


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


def test_the_only_worker_of_a_task_killed_and_restarted(rig: Rig) -> None:
    (victim,) = workers_of(rig, "split")
    at_s = rig.kill(victim)
    back_s = bring_back(rig, victim)
    rig.until(lambda: rig.answers.well_since(at_s), "good answers only")
    each_ended_once(rig)
    tell("the only worker killed", rig, at_s, f"served again after {back_s:.2f} s")


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


def test_ingress_killed_under_load(rig: Rig) -> None:
    at_s = rig.kill("ingress-0")
    back_s = bring_back(rig, "ingress-0")
    rig.pass_time(1)
    each_ended_once(rig)
    tell("ingress killed", rig, at_s, f"back after {back_s:.2f} s")


def test_egress_killed_under_load(rig: Rig) -> None:
    at_s = rig.kill("egress-0")
    back_s = bring_back(rig, "egress-0")
    rig.pass_time(1)
    each_ended_once(rig)
    counts = rig.reports["egress-0"].counts
    tell(
        "egress killed", rig, at_s, f"back after {back_s:.2f} s",
        f"{counts['duplicates']:g} duplicates seen",
    )  # fmt: skip


def test_a_worker_that_was_stopped_and_goes_on_adds_no_answer(rig: Rig) -> None:
    zombie, _ = workers_of(rig, "square")
    before = rig.reports["egress-0"].counts["duplicates"]
    at_s = time.time()
    rig.freeze(zombie)
    rig.pass_time(3)
    rig.thaw(zombie)
    rig.until(rig.serves, "the zombie to be of use again")
    rig.pass_time(1)
    each_ended_once(rig)
    duplicates = rig.reports["egress-0"].counts["duplicates"] - before
    tell("a worker stopped for 3 s", rig, at_s, f"{duplicates:g} duplicates seen, none answered")


def test_every_role_killed_one_after_the_other(rig: Rig) -> None:
    at_s = time.time()
    for name in ("ingress-0", "cpu-0", "egress-0", "cpu-1", "control", "cpu-2"):
        rig.kill(name)
        rig.pass_time(UP_PAUSE_S)
        rig.start(name)
        rig.pass_time(1)
    rig.until(rig.serves, "every role to serve")
    rig.pass_time(1)
    each_ended_once(rig)
    tell("six kills in a row", rig, at_s)


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


def test_the_broker_away_for_five_seconds_under_load(tmp_path: Path) -> None:
    home = tmp_path / "broker"
    with local.borrow(home) as broker, ThreadPoolExecutor(1) as beside:
        rig = Rig(broker.bootstrap, tmp_path, PIPELINE)
        try:
            rig.up()
            rig.offer(RATE)
            rig.pass_time(2)
            stopping = beside.submit(local.stop, home)
            at_s = time.time()
            rig.until(stopping.done, "the broker to stop")
            rig.pass_time(5)
            starting = beside.submit(local.start, home)
            rig.until(starting.done, "the broker to start", 70.0)
            up_s = time.time()
            rig.until(lambda: rig.answers.well_since(up_s), "answers in time again")
            well_s = time.time() - up_s
            rig.until(rig.serves, "every role to serve")
            each_ended_once(rig)
            tell(
                f"broker away for {up_s - at_s:.1f} s", rig, at_s,
                f"served well {well_s:.2f} s after it was back; {len(rig.plans)} plans in all",
            )  # fmt: skip
        finally:
            rig.close()
            local.stop(home)
