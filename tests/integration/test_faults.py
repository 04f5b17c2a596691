"""Faults under load: every query still gets exactly one answer.

Each test prints its measurements, which are those of a busy machine: other tests run beside it.
``test_timely_faults.py`` has the faults that no query may notice. Roles restart as under
``headrace up``, half a second after they died.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.rig import Rig
from benchmarks.squares import PIPELINE
from headrace.broker import local_broker as local
from tests.integration.rigs import (
    RATE,
    UP_PAUSE_S,
    bring_back,
    each_ended_once,
    tell,
    under_load,
    workers_of,
)

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def running(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Run a pipeline on a broker of its own, which one of the tests stops."""
    with local.borrow(home) as broker:
        rig = Rig(broker.bootstrap, tmp_path_factory.mktemp("faults"), PIPELINE)
        try:
            rig.up()
            yield rig
        finally:
            rig.close()


@pytest.fixture
def rig(running: Rig) -> Iterator[Rig]:
    yield from under_load(running, RATE)


def test_the_only_worker_of_a_task_killed_and_restarted(rig: Rig) -> None:
    (victim,) = workers_of(rig, "split")
    at_s = rig.kill(victim)
    back_s = bring_back(rig, victim)
    rig.until(lambda: rig.answers.well_since(at_s), "good answers only")
    each_ended_once(rig)
    tell("the only worker killed", rig, at_s, f"served again after {back_s:.2f} s")


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


def test_the_broker_away_for_five_seconds_under_load(rig: Rig, home: Path) -> None:
    rig.pass_time(1)
    with ThreadPoolExecutor(1) as beside:
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
