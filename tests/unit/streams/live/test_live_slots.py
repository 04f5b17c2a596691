"""The live driver when slots change owners, and the executor when variants change."""

import gc
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from queue import SimpleQueue
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any

import pytest

from operators.calls.user_frames import OperatorFailed
from operators.timed_batch import seconds_left
from profiles.measurements import ProfileError
from schemas.codec.single_object import encode
from schemas.effects import (
    PLANS,
    Arrived,
    Assign,
    Effect,
    Event,
    Failed,
    Infer,
    Inferred,
    Load,
    Loaded,
)
from schemas.records import Command, Plan, Record, Work
from streams.codecs.wire import Fetched
from streams.fencing import StoodStill
from streams.live.crash_journal import CrashJournal
from streams.live.executors import LOAD_S, STUCK_S, EmulatedExecutor, ModelExecutor, OperatorStuck
from streams.live.inbox import FetchedBatch, Inbox
from streams.live.live_driver import Live
from streams.live.slot_readers import CATCH_UP_S, LogWentBack
from tests.builders import a_pipeline, a_plan, a_work
from tests.memory_transport import MemoryTransport, VirtualClock

WORK = "p.work.read"
PLACE = (WORK, 0)


class Scripted:
    """A node that reads the slots scripted for a plan's epoch and records its work."""

    def __init__(self, script: Mapping[int, tuple[int, ...]]) -> None:
        self._script = script
        self.seen: list[int] = []
        self.epochs: list[int] = []

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if not isinstance(event, Arrived):
            return [Assign(PLANS, (0,))]
        if isinstance(event.record, Work):
            self.seen.append(event.offset)
        if isinstance(event.record, Plan):
            self.epochs.append(event.record.epoch)
        if isinstance(event.record, Plan) and event.record.epoch in self._script:
            return [Assign("work.read", self._script[event.record.epoch])]
        return []


class World:
    """Return a driver with these nodes; the test puts fetches into its inbox."""

    def __init__(self, **nodes: Scripted) -> None:
        self.clock = VirtualClock()
        self.transport = MemoryTransport(a_pipeline(), self.clock, 0.0)
        self._inbox = Inbox()
        live = Live(a_pipeline(), nodes, self.transport, clock=self.clock, inbox=self._inbox)
        self._live = live
        self.leave = live.leave
        live.start()

    @property
    def has_left(self) -> bool:
        return self._live.has_left

    def fetched(self, assigned: int, *records: Fetched) -> None:
        self._inbox.put(FetchedBatch(assigned, list(records)))
        self._live.turn()


def on_work(offset: int) -> Fetched:
    return fetched(WORK, offset, a_work(offset))


def on_plans(epoch: int) -> Fetched:
    return fetched("headrace.plans", epoch, a_plan(epoch=epoch))


def fetched(topic: str, offset: int, record: Record) -> Fetched:
    return Fetched(topic, 0, offset, 0.0, None, encode(record), None)


def test_what_was_read_of_a_slot_before_it_was_lost_and_came_back_is_not_taken_for_news() -> None:
    worker = Scripted({1: (0,), 2: (), 3: (0,)})
    world = World(worker=worker)
    world.fetched(1, on_plans(1))
    world.fetched(2, on_work(5), on_work(6))
    assert worker.seen == [5, 6]
    # One fetch, read under the first lease: the slot leaves and returns; 7 is of the old reading.
    world.fetched(2, on_plans(2), on_plans(3), on_work(7))
    world.fetched(3, on_work(8))
    assert worker.seen == [5, 6]
    world.fetched(4, on_work(5), on_work(6), on_work(7))
    assert worker.seen == [5, 6, 5, 6, 7]


@pytest.mark.parametrize("new_owner_first", [True, False])
def test_a_slot_that_moves_between_nodes_of_one_process_is_read_from_the_committed_offset(
    new_owner_first: bool,
) -> None:
    old, new = Scripted({1: (0,), 2: ()}), Scripted({2: (0,)})
    world = World(**{"a": new, "b": old} if new_owner_first else {"a": old, "b": new})
    world.fetched(1, on_plans(1))
    for offset in range(3):
        world.transport.send(WORK, encode(a_work(offset)), 0, "")
    assert [each.offset for each in world.transport.landed()] == [0, 1, 2]
    world.transport.committed[PLACE] = (1, "")
    world.fetched(1, on_plans(2))
    again = world.transport.landed()
    assert [each.offset for each in again] == [1, 2]
    world.fetched(world.transport.assigned, *again)
    assert (old.seen, new.seen) == ([], [1, 2])


# ---------------------------------------------------------------------- models


class Leaver(Scripted):
    """It returns its slots with the first plan after the request to leave."""

    asked = False

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if isinstance(event, Arrived) and isinstance(event.record, Command):
            assert (event.record.action, event.record.arguments) == ("drain", {"target": "worker"})
            self.asked = True
        return super().handle(event, now)


def test_a_process_that_leaves_ends_when_its_slots_are_taken_over() -> None:
    worker = Leaver({1: (0,), 2: ()})
    world = World(worker=worker)
    world.fetched(1, on_plans(1))
    world.leave(5.0)
    world.fetched(2, on_work(0))
    assert (worker.asked, worker.seen, world.has_left) == (True, [0], False)
    world.fetched(2, on_plans(2))
    assert world.has_left


def test_a_process_whose_slots_nobody_takes_ends_after_its_patience() -> None:
    world = World(worker=Leaver({1: (0,)}))
    world.fetched(1, on_plans(1))
    world.leave(5.0)
    world.clock.now = 5.0
    assert not world.has_left
    world.clock.now = 5.1
    assert world.has_left


class Named:
    """An operator that returns its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def load(self, device: str) -> None:
        """Load nothing."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [self._name] * len(batch)


@pytest.fixture
def posted() -> SimpleQueue[Event]:
    return SimpleQueue()


@pytest.fixture
def executor(posted: SimpleQueue[Event]) -> Iterator[ModelExecutor]:
    executor = ModelExecutor(Named, "cpu", posted.put, clock=lambda: 0.0)
    yield executor
    executor.close()


def test_a_variant_loaded_anew_while_another_served_can_be_used(
    executor: ModelExecutor, posted: SimpleQueue[Event]
) -> None:
    def loads(variant: str) -> None:
        executor.load(Load(variant))
        assert posted.get(timeout=10) == Loaded(variant, 0.0)

    def infers(job: int, variant: str) -> None:
        executor.infer(Infer(job, variant, (1,)))
        assert posted.get(timeout=10) == Inferred(job, (variant,), 0.0, 0.0)

    loads("read/a")
    infers(1, "read/a")
    loads("read/b")
    loads("read/a")
    infers(2, "read/b")
    infers(3, "read/a")


def test_operator_receives_the_time_limit_of_each_item(posted: SimpleQueue[Event]) -> None:
    class Patient:
        def load(self, device: str) -> None:
            pass

        def predict(self, batch: list[Any]) -> list[Any]:
            return seconds_left(batch, 5.0)

    executor = ModelExecutor(lambda _: Patient(), "cpu", posted.put, lambda: 10.0)
    executor.load(Load("read/a"))
    posted.get(timeout=10)
    executor.infer(Infer(1, "read/a", (1, 2, 3), deadlines=(10.5, 99.0, 9.0)))
    executor.infer(Infer(2, "read/a", (1, 2)))
    told = [posted.get(timeout=10).outputs for _ in range(2)]  # type: ignore[union-attr]
    executor.close()
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


def test_variants_loaded_beside_stay_until_one_is_wanted_alone(
    executor: ModelExecutor, posted: SimpleQueue[Event]
) -> None:
    def loads(effect: Load) -> None:
        executor.load(effect)
        assert posted.get(timeout=10) == Loaded(effect.variant, 0.0)

    def infers(job: int, variant: str) -> None:
        executor.infer(Infer(job, variant, (1,)))
        assert posted.get(timeout=10) == Inferred(job, (variant,), 0.0, 0.0)

    loads(Load("read/a"))
    loads(Load("read/b", beside=True))
    loads(Load("read/c", beside=True))
    for job, variant in enumerate(("read/b", "read/a", "read/c", "read/a")):
        infers(job, variant)
    loads(Load("read/b"))  # it exists: nothing is created again
    infers(5, "read/a")
    infers(6, "read/b")
    assert list(executor._operators) == ["read/b"]


def test_a_fresh_load_forgets_the_users_code_and_replaces_what_serves(
    posted: SimpleQueue[Event],
) -> None:
    editions = iter("12345")
    edition = [""]

    def forget() -> None:
        edition[0] = next(editions)

    executor = ModelExecutor(
        lambda name: Named(name + edition[0]), "cpu", posted.put, lambda: 0.0, None, forget
    )

    def loads(effect: Load) -> None:
        executor.load(effect)
        assert posted.get(timeout=10) == Loaded(effect.variant, 0.0)

    def infers(variant: str, output: str) -> None:
        executor.infer(Infer(1, variant, (1,)))
        assert posted.get(timeout=10) == Inferred(1, (output,), 0.0, 0.0)

    loads(Load("a"))
    loads(Load("b", beside=True))
    infers("a", "a")
    loads(Load("a", fresh=True))
    infers("a", "a1")
    infers("b", "b")  # still loaded beside
    loads(Load("b", fresh=True))
    infers("b", "b2")
    loads(Load("c"))
    loads(Load("a", fresh=True))  # c has been loaded and not yet used
    infers("c", "c2")
    assert list(executor._operators) == ["c"]
    executor.close()


class Waiting(Named):
    """An operator that waits until it is released."""

    release = Flag()
    began = Flag()

    def predict(self, batch: list[Any]) -> list[Any]:
        self.began.set()
        assert self.release.wait(10)
        return super().predict(batch)


def test_hanging_batch_ends_the_process_with_a_remedy(
    posted: SimpleQueue[Event],
) -> None:
    executor = ModelExecutor(Waiting, "cpu", posted.put, clock=lambda: 5.0)
    executor.load(Load("read/a"))
    posted.get(timeout=10)
    executor.infer(Infer(1, "read/a", (1,)))
    assert Waiting.began.wait(10)
    executor.look(5.0 + STUCK_S)
    assert posted.empty()
    executor.look(5.1 + STUCK_S)
    failed = posted.get(timeout=10)
    assert isinstance(failed, Failed)
    assert failed.job == 1
    assert "has been running one batch" in failed.error
    with pytest.raises(OperatorStuck, match=r"read/a has been running .* `limits: \{time: ...\}`"):
        executor.look(5.1 + STUCK_S)
    Waiting.release.set()
    assert posted.get(timeout=10) == Inferred(1, ("read/a",), 5.0, 5.0)
    executor.close()


def test_executor_message_is_passed_on_unchanged(posted: SimpleQueue[Event]) -> None:
    class Ended(Named):
        def predict(self, batch: list[Any]) -> list[Any]:
            raise OperatorFailed("read/a took longer than its limit of 1 s")

    executor = ModelExecutor(Ended, "cpu", posted.put, clock=lambda: 0.0)
    executor.load(Load("read/a"))
    posted.get(timeout=10)
    executor.infer(Infer(1, "read/a", (1,)))
    assert posted.get(timeout=10) == Failed(1, "read/a took longer than its limit of 1 s")
    executor.close()


def test_new_reader_gets_only_the_newest_plan_of_a_topic() -> None:
    worker = Scripted({number: (number % 4,) for number in range(1, 31)})
    clock = VirtualClock()
    transport = MemoryTransport(a_pipeline(), clock, 0.0)
    for epoch in (*range(1, 20), 25, *range(20, 25)):
        transport.send("headrace.plans", encode(a_plan(epoch=epoch)), 0, "")
        transport.send("headrace.plans", encode(a_plan(epoch=90, pipeline="other")), 0, "")
    inbox = Inbox()
    live = Live(a_pipeline(), {"worker": worker}, transport, clock=clock, inbox=inbox)
    live.start()
    landed = transport.landed()
    for part in (landed[:7], landed[7:]):
        inbox.put(FetchedBatch(transport.assigned, part))
        live.turn()
    assert worker.epochs == [25]
    transport.send("headrace.plans", encode(a_plan(epoch=26)), 0, "")
    inbox.put(FetchedBatch(transport.assigned, transport.landed()))
    live.turn()
    assert worker.epochs == [25, 26]


def test_a_past_whose_last_offsets_hold_no_record_is_delivered_after_a_while() -> None:
    worker = Scripted({})
    clock = VirtualClock()
    transport = MemoryTransport(a_pipeline(), clock, 0.0)
    for epoch in (1, 2, 3):
        transport.send("headrace.plans", encode(a_plan(epoch=epoch)), 0, "")
    inbox = Inbox()
    live = Live(a_pipeline(), {"worker": worker}, transport, clock=clock, inbox=inbox)
    live.start()
    inbox.put(FetchedBatch(transport.assigned, transport.landed()[:2]))
    live.turn()
    assert worker.epochs == []
    clock.now = CATCH_UP_S + 0.1
    inbox.put(None)
    live.turn()
    assert worker.epochs == [2]


class Raising(Named):
    """An operator that raises the error named by its variant once, then answers."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._raised: BaseException | None = RAISED[name]

    def predict(self, batch: list[Any]) -> list[Any]:
        error, self._raised = self._raised, None
        if error is not None:
            raise error
        return super().predict(batch)


RAISED: dict[str, BaseException] = {
    "read/exit": SystemExit(4),
    "read/interrupt": KeyboardInterrupt(),
    "read/generator": GeneratorExit(),
    "read/value": ValueError("shape (3,4)"),
}


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ("read/exit", "raised SystemExit: 4"),
        ("read/interrupt", "raised KeyboardInterrupt"),
        ("read/generator", "raised GeneratorExit"),
        ("read/value", "raised ValueError: shape (3,4)"),
    ],
)
def test_whatever_an_operator_raises_fails_its_batch_and_the_next_one_runs(
    posted: SimpleQueue[Event], variant: str, words: str
) -> None:
    executor = ModelExecutor(Raising, "cpu", posted.put, clock=lambda: 0.0)
    executor.load(Load(variant))
    posted.get(timeout=10)
    executor.infer(Infer(1, variant, (1,)))
    failed = posted.get(timeout=10)
    assert isinstance(failed, Failed)
    assert failed.error.startswith(f"{variant} {words} (at test_live_slots.py:")
    assert "raise error" in failed.trace
    executor.infer(Infer(2, variant, (1,)))
    assert posted.get(timeout=10) == Inferred(2, (variant,), 0.0, 0.0)
    executor.look(0.0)
    executor.close()


def test_items_of_a_batch_that_failed_run_again_as_they_came(posted: SimpleQueue[Event]) -> None:
    class Changes(Named):
        def predict(self, batch: list[Any]) -> list[Any]:
            for each in batch:
                each["text"] = each.pop("raw")
            raise ValueError("one of them is bad")

    values: tuple[Any, ...] = ({"raw": "a"}, {"raw": "b"})
    executor = ModelExecutor(Changes, "cpu", posted.put, clock=lambda: 0.0)
    executor.load(Load("read/a"))
    posted.get(timeout=10)
    executor.infer(Infer(1, "read/a", values))
    assert isinstance(posted.get(timeout=10), Failed)
    assert values == ({"raw": "a"}, {"raw": "b"})
    executor.close()


def test_a_load_that_exits_fails_with_its_type_and_may_be_tried_again(
    posted: SimpleQueue[Event],
) -> None:
    class Exits(Named):
        def load(self, device: str) -> None:
            raise SystemExit("no licence")

    executor = ModelExecutor(Exits, "cpu", posted.put, clock=lambda: 0.0)
    for _ in range(2):
        executor.load(Load("read/a"))
        failed = posted.get(timeout=10)
        assert isinstance(failed, Failed)
        assert failed.error.startswith("read/a cannot be loaded: SystemExit: no licence")
    executor.close()


def test_a_batch_of_a_variant_that_is_not_loaded_fails_and_the_thread_lives(
    executor: ModelExecutor, posted: SimpleQueue[Event]
) -> None:
    executor.infer(Infer(1, "read/never", (1,)))
    failed = posted.get(timeout=10)
    assert isinstance(failed, Failed)
    executor.look(0.0)


def test_a_thread_of_models_that_has_ended_ends_the_process(posted: SimpleQueue[Event]) -> None:
    executor = ModelExecutor(Named, "cpu", posted.put, clock=lambda: 0.0)
    executor.close()
    executor._thread.join(10)
    with pytest.raises(OperatorStuck, match="thread that runs batches has ended"):
        executor.look(0.0)


@pytest.mark.parametrize("returned", [{"label": 3}, {3}, "x", b"x"])
def test_outputs_that_are_no_list_fail_the_batch(
    posted: SimpleQueue[Event], returned: object
) -> None:
    """Each has one element for the one input, which is no output."""

    class Bare(Named):
        def predict(self, batch: list[Any]) -> Any:
            return returned

    executor = ModelExecutor(Bare, "cpu", posted.put, clock=lambda: 0.0)
    executor.load(Load("read/a"))
    posted.get(timeout=10)
    executor.infer(Infer(1, "read/a", (1,)))
    failed = posted.get(timeout=10)
    assert isinstance(failed, Failed)
    assert failed.error.startswith(
        f"read/a raised TypeError: predict returned {type(returned).__name__}; r"
    )
    executor.close()


class AcceleratorError(RuntimeError):
    """Torch's error after a failed assertion in a kernel."""

    error_code = 710


@pytest.mark.parametrize("returned", [False, True])
def test_a_batch_that_loses_the_device_ends_the_process_as_a_crash_does(
    posted: SimpleQueue[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: bool
) -> None:
    """CUDA refuses every later call of the process: other items must not fail by it."""

    class Faulty(Named):
        def predict(self, batch: list[Any]) -> list[Any]:
            if returned:
                return [AcceleratorError("device-side assert triggered")]
            raise AcceleratorError("device-side assert triggered")

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(AcceleratorError=AcceleratorError))
    path = tmp_path / "w.running.json"
    journal = CrashJournal(path)
    executor = ModelExecutor(Faulty, "cuda:0", posted.put, lambda: 0.0, journal)
    executor.load(Load("read/a"))
    posted.get(timeout=10)
    executor.infer(Infer(1, "read/a", (1,), ("the-item",)))
    executor.infer(Infer(2, "read/a", (2,), ("another",)))
    executor._thread.join(10)
    with pytest.raises(OperatorStuck, match=r"read/a lost the device \(AcceleratorError: dev"):
        executor.look(0.0)
    executor.close()
    assert posted.empty()
    assert CrashJournal(path).strikes == {"the-item": 1}


def test_a_model_that_was_evicted_makes_room_for_the_next_one(posted: SimpleQueue[Event]) -> None:
    """The device holds two models, and each holds a cycle, as many of torch's do."""
    alive: list[weakref.ref[Any]] = []

    class Cyclic(Named):
        def load(self, device: str) -> None:
            self.itself = self
            if sum(each() is not None for each in alive) == 2:
                raise RuntimeError("CUDA out of memory. Tried to allocate 5.00 GiB")
            alive.append(weakref.ref(self))

    executor = ModelExecutor(Cyclic, "cuda:0", posted.put, lambda: 0.0)
    gc.disable()
    try:
        for job, variant in enumerate(("read/a", "read/b", "read/c")):
            executor.load(Load(variant))
            assert posted.get(timeout=10) == Loaded(variant, 0.0)
            executor.infer(Infer(job, variant, (1,)))
            assert posted.get(timeout=10) == Inferred(job, (variant,), 0.0, 0.0)
        # A fourth model beside the serving one fits as well; two more do not.
        executor.load(Load("read/d", beside=True))
        assert posted.get(timeout=10) == Loaded("read/d", 0.0)
        executor.load(Load("read/e", beside=True))
        failed = posted.get(timeout=10)
    finally:
        gc.enable()
    assert isinstance(failed, Failed)
    assert (failed.job, "cannot be loaded: RuntimeError: CUDA out of memory" in failed.error) == (
        "read/e", True,
    )  # fmt: skip
    executor.infer(Infer(9, "read/c", (1,)))
    assert posted.get(timeout=10) == Inferred(9, ("read/c",), 0.0, 0.0)
    executor.close()


def test_a_load_that_loses_the_device_fails_and_ends_the_process(
    posted: SimpleQueue[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Faulty(Named):
        def load(self, device: str) -> None:
            raise AcceleratorError("device-side assert triggered")

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(AcceleratorError=AcceleratorError))
    executor = ModelExecutor(Faulty, "cuda:0", posted.put, lambda: 0.0)
    executor.load(Load("read/a"))
    failed = posted.get(timeout=10)
    assert isinstance(failed, Failed)
    assert failed.job == "read/a"
    with pytest.raises(OperatorStuck, match="read/a lost the device"):
        executor.look(0.0)
    executor.close()


def test_a_process_of_its_own_decides_how_long_its_batches_and_loads_may_take(
    posted: SimpleQueue[Event],
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

    executor = ModelExecutor(
        Long, "cpu", posted.put, clock=lambda: 5.0, apart=lambda variant: variant == "read/a"
    )
    executor.load(Load("read/a"))
    executor.look(5.1 + LOAD_S)
    executor.look(5.2 + LOAD_S)
    release.set()
    assert posted.get(timeout=10) == Loaded("read/a", 0.0)
    executor.infer(Infer(1, "read/a", (1,)))
    assert began.wait(10)
    executor.look(5.1 + STUCK_S)
    executor.look(5.2 + STUCK_S)
    release.set()
    assert posted.get(timeout=10) == Inferred(1, (1,), 5.0, 5.0)
    executor.close()


def test_a_load_that_does_not_end_fails_and_ends_the_process(posted: SimpleQueue[Event]) -> None:
    release = Flag()

    class Hangs(Named):
        def load(self, device: str) -> None:
            assert release.wait(10)

    executor = ModelExecutor(Hangs, "cpu", posted.put, clock=lambda: 5.0)
    executor.load(Load("read/a"))
    executor.look(5.0 + LOAD_S)
    assert posted.empty()
    executor.look(5.1 + LOAD_S)
    failed = posted.get(timeout=10)
    assert isinstance(failed, Failed)
    assert failed.job == "read/a"
    with pytest.raises(OperatorStuck, match="read/a has been loading for 600 s"):
        executor.look(5.1 + LOAD_S)
    release.set()
    executor.close()


def test_a_variant_that_is_loading_is_not_loaded_a_second_time(posted: SimpleQueue[Event]) -> None:
    release, made = Flag(), []

    class Slow(Named):
        def load(self, device: str) -> None:
            made.append(self)
            assert release.wait(10)

    executor = ModelExecutor(Slow, "cpu", posted.put, clock=lambda: 0.0)
    executor.load(Load("read/a"))
    executor.load(Load("read/a"))
    release.set()
    assert posted.get(timeout=10) == Loaded("read/a", 0.0)
    assert len(made) == 1
    executor.close()


@pytest.mark.parametrize("fails", [False, True])
def test_a_reload_during_a_load_reads_the_code_once_more(
    posted: SimpleQueue[Event], fails: bool
) -> None:
    """The first load may have read the code before the edit."""
    release, edition = Flag(), ["old"]

    class Slow(Named):
        def load(self, device: str) -> None:
            assert release.wait(10)
            if fails and self._name == "read/a of old":
                raise ValueError("a typing error")

    def forget() -> None:
        edition[0] = "new"

    executor = ModelExecutor(
        lambda name: Slow(f"{name} of {edition[0]}"), "cpu", posted.put, lambda: 0.0, None, forget
    )
    executor.load(Load("read/a"))
    executor.load(Load("read/a", fresh=True))
    release.set()
    assert posted.get(timeout=10) == Loaded("read/a", 0.0)
    executor.infer(Infer(1, "read/a", (1,)))
    assert posted.get(timeout=10) == Inferred(1, ("read/a of new",), 0.0, 0.0)
    executor.close()


def test_a_slot_whose_offsets_go_back_ends_the_role_with_a_sentence() -> None:
    worker = Scripted({1: (0,)})
    world = World(worker=worker)
    world.fetched(1, on_plans(1))
    world.fetched(2, on_work(5), on_work(6))
    with pytest.raises(LogWentBack, match=r"slot 0 of topic p\.work\.read went back from offset 7"):
        world.fetched(2, on_work(2))
    assert worker.seen == [5, 6]


def test_plans_may_go_back_since_their_epochs_tell_them_apart() -> None:
    worker = Scripted({1: (0,)})
    world = World(worker=worker)
    world.fetched(1, on_plans(5))
    world.fetched(1, on_plans(2))  # the topic was recreated
    assert worker.epochs == [5, 2]


def test_a_process_that_stood_still_does_nothing_that_another_may_have_done() -> None:
    worker, clock, inbox = Scripted({}), VirtualClock(), Inbox()
    transport = MemoryTransport(a_pipeline(), clock, 0.0)
    nodes = {"worker": worker}
    live = Live(a_pipeline(), nodes, transport, clock=clock, inbox=inbox, fence_s=5.0)
    live.start()
    for passed_s in (0.0, 5.0):
        clock.now += passed_s
        inbox.put(None)
        live.turn()
    clock.now += 5.1
    inbox.put(FetchedBatch(1, [on_plans(7)]))
    with pytest.raises(StoodStill, match=r"this process stood still for 5\.1 s; another may have"):
        live.turn()
    assert worker.epochs == []


class Stalls(Scripted):
    """A node whose process is suspended while it handles the plan of an epoch."""

    def __init__(self, clock: VirtualClock, epoch: int, seconds: float) -> None:
        super().__init__({})
        self._clock, self._epoch, self._seconds = clock, epoch, seconds

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        effects = super().handle(event, now)
        if self.epochs[-1:] == [self._epoch]:
            self._clock.now += self._seconds
        return effects


@pytest.mark.parametrize("seconds", [4.9, 5.1])
def test_a_process_that_stood_still_within_a_turn_ends_too(seconds: float) -> None:
    clock, inbox = VirtualClock(), Inbox()
    worker = Stalls(clock, 7, seconds)
    transport = MemoryTransport(a_pipeline(), clock, 0.0)
    nodes = {"worker": worker}
    live = Live(a_pipeline(), nodes, transport, clock=clock, inbox=inbox, fence_s=5.0)
    live.start()
    for records in ([on_plans(7)], [on_plans(8)]):
        inbox.put(FetchedBatch(1, records))
    with pytest.raises(StoodStill) if seconds > 5.0 else nullcontext():
        live.turn()
    assert worker.epochs == ([7] if seconds > 5.0 else [7, 8])
