"""headrace/roles/workers/shared_cpu.py: operators keep to the CPU time of their device's share.

Time advances by the compute time that operators report and by waits, which do not sleep.
"""

from pathlib import Path
from threading import Condition, Thread
from typing import Any

import pytest

from headrace.config.pipeline_file import read_pipeline_file
from headrace.roles.workers.device_time import SAVED_S
from headrace.roles.workers.shared_cpu import PaidOperator, PartOperator, SharedCpu
from headrace.roles.workers.worker_models import share_of
from operators.timed_batch import TimedBatch, seconds_left
from streams.live.executors import Operator

EXAMPLE = Path(__file__).parents[5] / "examples" / "postcode"


class Clock:
    """The CPU seconds of one thread and the seconds that it has waited."""

    def __init__(self) -> None:
        self.used_s = self.waited_s = 0.0

    def __call__(self) -> float:
        return self.used_s + self.waited_s

    def thread_s(self) -> float:
        return self.used_s

    def wait(self, _: Condition, seconds: float) -> None:
        self.waited_s += seconds

    def sleep(self, seconds: float) -> None:
        self.waited_s += seconds


class Burner:
    """An operator that computes for 2 ms of CPU time an item."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def load(self, device: str) -> None:
        self.device = device

    def predict(self, batch: list[Any]) -> list[Any]:
        self.clock.used_s += 0.002 * len(batch)
        return batch


def part_of(cpu: SharedCpu, part: int, clock: Clock) -> PartOperator:
    return PartOperator(Burner(clock), cpu, part, apart=False, thread_s=clock.thread_s)


def paid(operator: Operator, share: float, clock: Clock) -> PaidOperator:
    return PaidOperator(operator, share, clock.thread_s, clock, clock.sleep)


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_an_operator_uses_its_share_of_the_cpu_time(rate: float) -> None:
    clock = Clock()
    operator = part_of(SharedCpu(1, rate, clock, clock.wait), 0, clock)
    operator.load("cpu")
    for number in range(2000):
        assert operator.predict([number]) == [number]
    # Its savings are used, and the last batch is not paid for yet.
    assert clock.used_s / clock() == pytest.approx(rate, rel=0.02)


def test_an_operator_is_told_the_time_that_waiting_for_its_part_has_left() -> None:
    class Patient(Burner):
        def predict(self, batch: list[Any]) -> list[Any]:
            super().predict(batch)
            return seconds_left(batch, 9.0)

    clock = Clock()
    cpu = SharedCpu(1, 0.5, clock, clock.wait)
    operator = PartOperator(Patient(clock), cpu, 0, apart=False, thread_s=clock.thread_s)
    for _ in range(100):
        operator.predict([1])  # uses the savings
    waited_s = -clock.waited_s
    (left_s,) = operator.predict(TimedBatch([1], [5.0]))
    waited_s += clock.waited_s
    assert waited_s > 0.0
    assert left_s == pytest.approx(5.0 - waited_s)
    assert operator.predict([1]) == [9.0]


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_batch_on_a_share_takes_as_long_as_on_a_slower_core(share: float) -> None:
    clock = Clock()
    operator = paid(Burner(clock), share, clock)
    for items in (1, 3):
        began_s = clock()
        assert operator.predict([0] * items) == [0] * items
        assert 0.002 * items / (clock() - began_s) == pytest.approx(share)


def test_the_share_does_not_multiply_the_time_that_other_processes_take() -> None:
    """A batch of 10 ms on a tier of speed 0.1 that waited 50 ms for a core took 600 ms."""
    clock = Clock()

    class Preempted(Burner):
        def predict(self, batch: list[Any]) -> list[Any]:
            clock.waited_s += 0.05
            return super().predict(batch)

    assert paid(Preempted(clock), 0.1, clock).predict([0] * 5) == [0] * 5
    assert clock() == pytest.approx(0.1)


def test_a_batch_that_fails_on_a_share_is_paid_for_too() -> None:
    clock = Clock()

    class Failing(Burner):
        def predict(self, batch: list[Any]) -> list[Any]:
            super().predict(batch)
            raise ValueError("no")

    operator = paid(Failing(clock), 0.25, clock)
    with pytest.raises(ValueError, match="no"):
        operator.predict([1])
    assert clock.waited_s == pytest.approx(3 * 0.002)


def test_a_whole_core_of_ones_own_waits_for_nothing() -> None:
    clock = Clock()
    operator = part_of(SharedCpu(1, 1.0, clock, clock.wait), 0, clock)
    for _ in range(20):
        operator.predict([1])
    assert clock.waited_s == 0.0


def test_a_batch_that_fails_is_charged_and_ends() -> None:
    clock = Clock()
    cpu = SharedCpu(1, 0.5, clock, clock.wait)

    def fails() -> list[Any]:
        Burner(clock).predict([1] * 500)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cpu.run(0, fails, clock.thread_s)
    cpu.run(0, lambda: [], clock.thread_s)
    assert clock.waited_s == pytest.approx(1.0 - SAVED_S)


def test_threads_of_two_parts_run_beside_each_other() -> None:
    """With real waits, every batch of both ends."""
    cpu, done = SharedCpu(2, 1.0), []
    operators = [PartOperator(Burner(Clock()), cpu, part, apart=False) for part in range(2)]
    threads = [
        Thread(target=lambda each=each: done.extend(each.predict([n])[0] for n in range(5)))  # type: ignore[misc]
        for each in operators
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert sorted(done) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize(
    ("name", "device", "share"),
    [
        ("sessions", "scan@handheld", 0.5),  # an emulated tier of half the speed
        ("sessions", "read@cloud", 1.0),
        ("sheets", "quarter", 0.25),
        ("sheets", "core", 1.0),
    ],
)
def test_the_share_of_a_device_is_that_of_its_type_or_emulated_tier(
    name: str, device: str, share: float
) -> None:
    file = read_pipeline_file(EXAMPLE / f"{name}.yaml")
    assert share_of(file, device) == share
