"""The executors: loads, batches and failures of real and of emulated models."""

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any

import pytest

from operators.calls.user_frames import OperatorFailed
from operators.timed_batch import seconds_left
from profiles.measurements import ProfileError
from schemas.effects import Event, Failed, Infer, Inferred, Load, Loaded
from streams.live.crash_journal import CrashJournal
from streams.live.executors import LOAD_S, STUCK_S, EmulatedExecutor, ModelExecutor, OperatorStuck


class Named:
    """An operator that returns its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def load(self, device: str) -> None:
        """Load nothing."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [self._name] * len(batch)


class Executed(ModelExecutor):
    """An executor whose events a test takes one by one; its clock stands still at ``at_s``."""

    def __init__(
        self, make: Callable[[str], Any], device: str = "cpu", *, at_s: float = 0.0, **options: Any
    ) -> None:
        self._posted: SimpleQueue[Event] = SimpleQueue()
        self._job = 0
        super().__init__(make, device, self._posted.put, clock=lambda: at_s, **options)

    def posts(self) -> Event:
        return self._posted.get(timeout=10)

    def fails(self) -> Failed:
        """Return the next event, which must be a failure."""
        event = self.posts()
        assert isinstance(event, Failed)
        return event

    @property
    def silent(self) -> bool:
        return self._posted.empty()

    def loads(self, variant: str = "read/a", **how: bool) -> None:
        self.load(Load(variant, **how))
        assert self.posts() == Loaded(variant, 0.0)

    def runs(self, variant: str = "read/a", *values: Any) -> None:
        """Start a batch; see what it posts by ``posts`` or ``fails``."""
        self._job += 1
        self.infer(Infer(self._job, variant, values or (1,)))

    def infers(self, variant: str, output: str = "") -> None:
        """Run a batch that must end with this output, or the variant's name."""
        self.runs(variant)
        at_s = self._clock()
        assert self.posts() == Inferred(self._job, (output or variant,), at_s, at_s)


@pytest.fixture
def executed() -> Iterator[Callable[..., Executed]]:
    """Make executors that are closed after the test."""
    made: list[Executed] = []

    def make(*arguments: Any, **options: Any) -> Executed:
        made.append(Executed(*arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


Make = Callable[..., Executed]


def test_a_variant_loaded_anew_while_another_served_can_be_used(executed: Make) -> None:
    executor = executed(Named)
    executor.loads("read/a")
    executor.infers("read/a")
    executor.loads("read/b")
    executor.loads("read/a")
    executor.infers("read/b")
    executor.infers("read/a")


def test_operator_receives_the_time_limit_of_each_item(executed: Make) -> None:
    class Patient(Named):
        def predict(self, batch: list[Any]) -> list[Any]:
            return seconds_left(batch, 5.0)

    executor = executed(Patient, at_s=10.0)
    executor.loads()
    executor.infer(Infer(1, "read/a", (1, 2, 3), deadlines=(10.5, 99.0, 9.0)))
    executor.infer(Infer(2, "read/a", (1, 2)))
    told = [executor.posts().outputs for _ in range(2)]  # type: ignore[union-attr]
    assert told == [(0.5, 5.0, -1.0), (5.0, 5.0)]


def test_an_emulated_batch_above_the_largest_measured_one_fails() -> None:
    """An error would end the role, and again when the restarted one has read the items again."""

    class Measured:
        def latency_s(self, batch: int) -> float:
            if batch > 4:
                raise ProfileError("measured for batches of 1 to 4")
            return 0.5

        def predict(self, values: list[Any]) -> list[Any]:
            return values

    posted: list[tuple[float, Event]] = []
    executor = EmulatedExecutor(
        lambda _: Measured(), lambda _: 0.0, lambda at_s, event: posted.append((at_s, event)),
        clock=lambda: 7.0,
    )  # fmt: skip
    executor.load(Load("read/a"))
    executor.infer(Infer(1, "read/a", (1,), size=5))
    executor.infer(Infer(2, "read/a", (1,), size=4))
    assert posted[1:] == [
        (7.0, Failed(1, "measured for batches of 1 to 4")), (7.5, Inferred(2, (1,), 7.0, 7.5))
    ]  # fmt: skip


def test_variants_loaded_beside_stay_until_one_is_wanted_alone(executed: Make) -> None:
    executor = executed(Named)
    executor.loads("read/a")
    executor.loads("read/b", beside=True)
    executor.loads("read/c", beside=True)
    for variant in ("read/b", "read/a", "read/c", "read/a"):
        executor.infers(variant)
    executor.loads("read/b")  # it exists: nothing is created again
    executor.infers("read/a")
    executor.infers("read/b")
    assert list(executor._operators) == ["read/b"]


def test_a_fresh_load_forgets_the_users_code_and_replaces_what_serves(executed: Make) -> None:
    editions, edition = iter("12345"), [""]

    def forget() -> None:
        edition[0] = next(editions)

    executor = executed(lambda name: Named(name + edition[0]), forget_code=forget)
    executor.loads("a")
    executor.loads("b", beside=True)
    executor.infers("a")
    executor.loads("a", fresh=True)
    executor.infers("a", "a1")
    executor.infers("b")  # still loaded beside
    executor.loads("b", fresh=True)
    executor.infers("b", "b2")
    executor.loads("c")
    executor.loads("a", fresh=True)  # c has been loaded and not yet used
    executor.infers("c", "c2")
    assert list(executor._operators) == ["c"]


def test_hanging_batch_ends_the_process_with_a_remedy(executed: Make) -> None:
    began, release = Flag(), Flag()

    class Waiting(Named):
        def predict(self, batch: list[Any]) -> list[Any]:
            began.set()
            assert release.wait(10)
            return super().predict(batch)

    executor = executed(Waiting, at_s=5.0)
    executor.loads()
    executor.runs()
    assert began.wait(10)
    executor.look(5.0 + STUCK_S)
    assert executor.silent
    executor.look(5.1 + STUCK_S)
    failed = executor.fails()
    assert failed.job == 1
    assert "has been running one batch" in failed.error
    with pytest.raises(OperatorStuck, match=r"read/a has been running .* `limits: \{time: ...\}`"):
        executor.look(5.1 + STUCK_S)
    release.set()
    assert executor.posts() == Inferred(1, ("read/a",), 5.0, 5.0)


RAISED: dict[str, tuple[BaseException, str]] = {
    "read/exit": (SystemExit(4), "raised SystemExit: 4"),
    "read/interrupt": (KeyboardInterrupt(), "raised KeyboardInterrupt"),
    "read/generator": (GeneratorExit(), "raised GeneratorExit"),
    "read/value": (ValueError("shape (3,4)"), "raised ValueError: shape (3,4)"),
}


@pytest.mark.parametrize("variant", RAISED)
def test_whatever_an_operator_raises_fails_its_batch_and_the_next_one_runs(
    executed: Make, variant: str
) -> None:
    error, words = RAISED[variant]
    to_raise = [error]

    class Raising(Named):
        def predict(self, batch: list[Any]) -> list[Any]:
            if to_raise:
                raise to_raise.pop()
            return super().predict(batch)

    executor = executed(Raising)
    executor.loads(variant)
    executor.runs(variant)
    failed = executor.fails()
    assert failed.error.startswith(f"{variant} {words} (at test_executors.py:")
    assert "raise to_raise.pop()" in failed.trace
    executor.infers(variant)
    executor.look(0.0)


def test_the_message_of_an_operators_process_is_passed_on_unchanged(executed: Make) -> None:
    class Ended(Named):
        def predict(self, batch: list[Any]) -> list[Any]:
            raise OperatorFailed("read/a took longer than its limit of 1 s")

    executor = executed(Ended)
    executor.loads()
    executor.runs()
    assert executor.posts() == Failed(1, "read/a took longer than its limit of 1 s")


def test_items_of_a_batch_that_failed_run_again_as_they_came(executed: Make) -> None:
    class Changes(Named):
        def predict(self, batch: list[Any]) -> list[Any]:
            for each in batch:
                each["text"] = each.pop("raw")
            raise ValueError("one of them is bad")

    values = ({"raw": "a"}, {"raw": "b"})
    executor = executed(Changes)
    executor.loads()
    executor.runs("read/a", *values)
    executor.fails()
    assert values == ({"raw": "a"}, {"raw": "b"})


def test_a_load_that_exits_fails_with_its_type_and_may_be_tried_again(executed: Make) -> None:
    class Exits(Named):
        def load(self, device: str) -> None:
            raise SystemExit("no licence")

    executor = executed(Exits)
    for _ in range(2):
        executor.load(Load("read/a"))
        error = executor.fails().error
        assert error.startswith("read/a cannot be loaded: SystemExit: no licence")


def test_a_batch_of_a_variant_that_is_not_loaded_fails_and_the_thread_lives(executed: Make) -> None:
    executor = executed(Named)
    executor.runs("read/never")
    executor.fails()
    executor.look(0.0)


def test_a_thread_of_models_that_has_ended_ends_the_process(executed: Make) -> None:
    executor = executed(Named)
    executor.close()
    executor._thread.join(10)
    with pytest.raises(OperatorStuck, match="thread that runs batches has ended"):
        executor.look(0.0)


@pytest.mark.parametrize("returned", [{"label": 3}, {3}, "x", b"x"])
def test_outputs_that_are_no_list_fail_the_batch(executed: Make, returned: object) -> None:
    """Each has one element for the one input, which is no output."""

    class Bare(Named):
        def predict(self, batch: list[Any]) -> Any:
            return returned

    executor = executed(Bare)
    executor.loads()
    executor.runs()
    error = f"read/a raised TypeError: predict returned {type(returned).__name__}; r"
    assert executor.fails().error.startswith(error)


class AcceleratorError(RuntimeError):
    """Torch's error after a failed assertion in a kernel."""

    error_code = 710


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(AcceleratorError=AcceleratorError))


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("returned", [False, True])
def test_a_batch_that_loses_the_device_ends_the_process_as_a_crash_does(
    executed: Make, tmp_path: Path, returned: bool
) -> None:
    """CUDA refuses every later call of the process: other items must not fail by it."""

    class Faulty(Named):
        def predict(self, batch: list[Any]) -> list[Any]:
            if returned:
                return [AcceleratorError("device-side assert triggered")]
            raise AcceleratorError("device-side assert triggered")

    path = tmp_path / "w.running.json"
    executor = executed(Faulty, "cuda:0", journal=CrashJournal(path))
    executor.loads()
    executor.infer(Infer(1, "read/a", (1,), ("the-item",)))
    executor.infer(Infer(2, "read/a", (2,), ("another",)))
    executor._thread.join(10)
    with pytest.raises(OperatorStuck, match=r"read/a lost the device \(AcceleratorError: dev"):
        executor.look(0.0)
    executor.close()
    assert executor.silent
    assert CrashJournal(path).strikes == {"the-item": 1}


@pytest.mark.usefixtures("torch")
def test_a_load_that_loses_the_device_fails_and_ends_the_process(executed: Make) -> None:
    class Faulty(Named):
        def load(self, device: str) -> None:
            raise AcceleratorError("device-side assert triggered")

    executor = executed(Faulty, "cuda:0")
    executor.load(Load("read/a"))
    assert executor.fails().job == "read/a"
    with pytest.raises(OperatorStuck, match="read/a lost the device"):
        executor.look(0.0)


def test_a_model_that_was_evicted_makes_room_for_the_next_one(executed: Make) -> None:
    """The device holds two models, and each holds a cycle, as many of torch's do."""
    alive: list[weakref.ref[Any]] = []

    class Cyclic(Named):
        def load(self, device: str) -> None:
            self.itself = self
            if sum(each() is not None for each in alive) == 2:
                raise RuntimeError("CUDA out of memory. Tried to allocate 5.00 GiB")
            alive.append(weakref.ref(self))

    executor = executed(Cyclic, "cuda:0")
    gc.disable()
    try:
        for variant in ("read/a", "read/b", "read/c"):
            executor.loads(variant)
            executor.infers(variant)
        # A fourth model beside the serving one fits as well; two more do not.
        executor.loads("read/d", beside=True)
        executor.load(Load("read/e", beside=True))
        failed = executor.fails()
    finally:
        gc.enable()
    assert failed.job == "read/e"
    assert "cannot be loaded: RuntimeError: CUDA out of memory" in failed.error
    executor.infers("read/c")


def test_a_process_of_its_own_decides_how_long_its_batches_and_loads_may_take(
    executed: Make,
) -> None:
    began, release = Flag(), Flag()

    class Long(Named):
        def load(self, device: str) -> None:
            assert release.wait(10)
            release.clear()

        def predict(self, batch: list[Any]) -> list[Any]:
            began.set()
            assert release.wait(10)
            return batch

    executor = executed(Long, at_s=5.0, apart=lambda variant: variant == "read/a")
    executor.load(Load("read/a"))
    executor.look(5.1 + LOAD_S)
    executor.look(5.2 + LOAD_S)
    release.set()
    assert executor.posts() == Loaded("read/a", 0.0)
    executor.runs()
    assert began.wait(10)
    executor.look(5.1 + STUCK_S)
    executor.look(5.2 + STUCK_S)
    release.set()
    assert executor.posts() == Inferred(1, (1,), 5.0, 5.0)


def test_a_load_that_does_not_end_fails_and_ends_the_process(executed: Make) -> None:
    release = Flag()

    class Hangs(Named):
        def load(self, device: str) -> None:
            assert release.wait(10)

    executor = executed(Hangs, at_s=5.0)
    executor.load(Load("read/a"))
    executor.look(5.0 + LOAD_S)
    assert executor.silent
    executor.look(5.1 + LOAD_S)
    assert executor.fails().job == "read/a"
    with pytest.raises(OperatorStuck, match="read/a has been loading for 600 s"):
        executor.look(5.1 + LOAD_S)
    release.set()


def test_a_variant_that_is_loading_is_not_loaded_a_second_time(executed: Make) -> None:
    release, made = Flag(), []

    class Slow(Named):
        def load(self, device: str) -> None:
            made.append(self)
            assert release.wait(10)

    executor = executed(Slow)
    executor.load(Load("read/a"))
    executor.load(Load("read/a"))
    release.set()
    assert executor.posts() == Loaded("read/a", 0.0)
    assert len(made) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_reload_during_a_load_reads_the_code_once_more(executed: Make, fails: bool) -> None:
    """The first load may have read the code before the edit."""
    release, edition = Flag(), ["old"]

    class Slow(Named):
        def load(self, device: str) -> None:
            assert release.wait(10)
            if fails and self._name == "read/a of old":
                raise ValueError("a typing error")

    def forget() -> None:
        edition[0] = "new"

    executor = executed(lambda name: Slow(f"{name} of {edition[0]}"), forget_code=forget)
    executor.load(Load("read/a"))
    executor.load(Load("read/a", fresh=True))
    release.set()
    assert executor.posts() == Loaded("read/a", 0.0)
    executor.infers("read/a", "read/a of new")
