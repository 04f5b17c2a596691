"""The dispatcher in ingress and its devices are killed, frozen and duplicated. Every query still
gets exactly one answer, and the queue is back as soon as the process is.

Each test prints its measurements.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import yaml

from benchmarks.received_answers import ends, in_time
from benchmarks.rig import Rig
from tests.inner_files import TWO_TASKS, a_two_task_file
from tests.integration.rigs import check_one_answer_each, under_load
from tests.integration.test_dispatching import TEXT
from tests.typed_files import a_typed_file

pytestmark = [pytest.mark.kafka, pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(300)]

# From process start to the first decision a dispatcher used 0.8 s of CPU time, mostly for imports.
# That took 5 s of wall time with seven processes on two cores.
AGAIN_CPU_S, AGAIN_S = 1.5, 10.0
RATE = 50.0  # a base device serves 100/s of size 1, an auxiliary one 50/s


def up(broker: str, file: Path) -> Iterator[Rig]:
    """Run a pipeline file in its folder."""
    described = yaml.safe_load(file.read_text(encoding="utf-8"))
    del described["name"]
    with closing(Rig(broker, file.parent, described)) as rig:
        rig.up()
        yield rig


@pytest.fixture(scope="module")
def running(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("dispatcher")
    text = TEXT.replace("start: {gpu: 1, slow: 2}", "start: {gpu: 1, slow: 1}")
    yield from up(broker, a_typed_file(folder, text))


@pytest.fixture
def rig(running: Rig) -> Iterator[Rig]:
    yield from under_load(running, RATE)


def each_ended_once(rig: Rig, what: str, at_s: float) -> None:
    check_one_answer_each(rig)
    print(f"\n{what}: {ends(rig.answers.since(at_s))}")


def killed_and_back(rig: Rig, name: str) -> float:
    """Kill a dispatcher and restart it; return the time of the kill.

    The first answer to a query sent after the kill marks its first decision.
    """
    at_s = rig.kill(name)
    began_s = time.time()
    rig.start(name)
    rig.until(lambda: any(map(in_time, rig.answers.since(at_s))), "an answer")
    took = psutil.Process(rig.pids[name]).cpu_times()
    first_s = min(a.answered_s for a in rig.answers.since(at_s) if in_time(a)) - began_s
    cpu_s = took.user + took.system
    print(f"\n{name}: first answer {first_s:.2f} s after its start, {cpu_s:.2f} s of CPU time")
    assert cpu_s < AGAIN_CPU_S
    assert first_s < AGAIN_S
    rig.until(lambda: rig.answers.well_since(at_s), "good answers only")
    return at_s


def frozen(rig: Rig, name: str, what: str) -> None:
    """Freeze a process for two seconds; its queries are served again and each ends once."""
    rig.freeze(name)
    rig.pass_time(2)
    rig.thaw(name)
    at_s = max(q.created_s for q in rig.answers)
    rig.until(lambda: rig.answers.well_since(at_s), "good answers only")
    each_ended_once(rig, f"{what} frozen for 2 s", at_s)


def refused(rig: Rig, name: str, what: str) -> None:
    """Start a process of the same name, which must end; the first one serves on."""
    at_s = max(q.created_s for q in rig.answers)
    assert rig.another(name) != 0
    rig.until(lambda: rig.answers.well_since(at_s), "good answers only")
    each_ended_once(rig, what, at_s)


def test_a_killed_dispatcher_has_its_queue_again(rig: Rig) -> None:
    each_ended_once(rig, "dispatcher killed", killed_and_back(rig, "ingress-0"))


def test_a_dispatcher_that_was_frozen_goes_on(rig: Rig) -> None:
    frozen(rig, "ingress-0", "dispatcher")


def test_a_second_dispatcher_is_refused_and_the_first_serves_on(rig: Rig) -> None:
    refused(rig, "ingress-0", "second dispatcher")


@pytest.mark.parametrize("device", ["gpu", "slow"])
def test_queries_of_a_killed_device_are_served_by_another_or_end(rig: Rig, device: str) -> None:
    epoch = rig.plan.epoch
    at_s = rig.kill(device)
    rig.until(lambda: rig.plan.epoch > epoch, "a plan without it")
    rig.pass_time(1)
    rig.start(device)
    rig.until(rig.serves, "the device to serve")
    rig.until(lambda: rig.answers.well_since(at_s), "good answers only")
    each_ended_once(rig, f"{device} killed", at_s)


def test_a_device_that_was_frozen_doubles_nothing(rig: Rig) -> None:
    frozen(rig, "slow", "device")


# ---------------------------------------------------------------------- of an inner task

INNER = "dispatcher-read-0"
INNER_RATE = 20.0  # queries/s of three items each; the devices serve some 100 items/s


@pytest.fixture(scope="module")
def running_inner(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("inner")
    yield from up(broker, a_two_task_file(folder, TWO_TASKS.replace("slo: 250ms", "slo: 2s")))


@pytest.fixture
def inner(running_inner: Rig) -> Iterator[Rig]:
    yield from under_load(running_inner, INNER_RATE)


def test_a_killed_inner_dispatcher_has_its_queue_again(inner: Rig) -> None:
    each_ended_once(inner, "inner dispatcher killed", killed_and_back(inner, INNER))


def test_an_inner_dispatcher_that_was_frozen_goes_on(inner: Rig) -> None:
    frozen(inner, INNER, "inner dispatcher")


def test_a_second_inner_dispatcher_is_refused_and_the_first_serves_on(inner: Rig) -> None:
    refused(inner, INNER, "second inner dispatcher")
