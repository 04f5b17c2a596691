"""Executors of a worker's models: real ones on threads, emulated ones by the driver's timers."""

import gc
import queue
import threading
import time
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Protocol

from msgspec.structs import replace

from operators.calls.device_faults import device_lost, out_of_memory, raise_if_lost
from operators.calls.operator_outputs import listed
from operators.calls.own_values import own_values
from operators.calls.user_frames import OperatorFailed, error_sentence, trace, with_frames
from operators.timed_batch import TimedBatch
from profiles.measurements import ProfileError
from schemas.effects import Event, Failed, Infer, Inferred, Load, Loaded, Unload
from schemas.user_errors import UNSUCCESSFUL, HeadraceError
from streams.live.crash_journal import CrashJournal
from streams.live.load_journal import LoadJournal
from streams.live.steady_clock import Clock
from streams.loaded_variants import LoadedVariants

Post = Callable[[Event], None]
PostAt = Callable[[float, Event], None]

LOAD_S = 600.0  # a longer load ends the process; large models are loaded over a network
STUCK_S = 60.0  # a longer batch of a variant without a time limit ends its process


class Executor(Protocol):
    """The performer of a worker's ``Infer`` and ``Load`` effects."""

    def infer(self, effect: Infer) -> None: ...
    def load(self, effect: Load) -> None: ...
    def unload(self, effect: Unload) -> None: ...
    def look(self, now: float) -> None: ...
    def close(self) -> None: ...


class OperatorStuck(HeadraceError):
    """A batch or a load does not end, its thread died, or its device is lost; only a new process
    helps."""

    exit_code = UNSUCCESSFUL


class Operator(Protocol):
    """An operator as built by operators/models."""

    def load(self, device: str) -> None: ...
    def predict(self, batch: list[Any]) -> list[Any]: ...


def _on_thread(variant: str) -> bool:
    return False


def _nothing() -> None:
    """Do nothing: the code of tests' operators does not change."""


def _free() -> float:
    return 0.0


class ModelExecutor:
    """Executor of real models.

    One thread runs batches, so a device runs one at a time; loads run on other threads, so that
    the old variant serves meanwhile.
    """

    def __init__(
        self,
        make: Callable[[str], Operator],
        device: str,
        post: Post,
        clock: Clock = time.time,
        journal: CrashJournal | None = None,
        forget_code: Callable[[], None] = _nothing,
        apart: Callable[[str], bool] = _on_thread,
        load_journal: LoadJournal | None = None,
        charged_s: Callable[[], float] = _free,
    ) -> None:
        self._journal, self._load_journal = journal, load_journal
        self._forget_code = forget_code  # so that ``make`` reads the user's modules anew
        self._charged_s = charged_s  # CPU time that is paid for the last batch
        self._apart = apart  # whether a variant runs in a process of its own, which can be ended
        self._make = make
        self._device = device
        self._post = post
        self._clock = clock
        self._operators = LoadedVariants[Operator]()
        self._jobs: queue.SimpleQueue[Infer | None] = queue.SimpleQueue()
        self._running: tuple[str, float, int] | None = None  # variant, since when, job
        # Variants being loaded: since when, and the newest request.
        self._loads: dict[str, tuple[float, Load]] = {}
        self._lock = threading.Lock()  # for the end of a load and a request during it
        self._stuck = ""  # why the process must end once the running items have failed
        self._thread = threading.Thread(target=self._work, name="models", daemon=True)
        self._thread.start()

    def infer(self, effect: Infer) -> None:
        self._jobs.put(effect)

    def load(self, effect: Load) -> None:
        beside = self._operators.has_beside(effect.variant)
        if beside and not effect.beside and not effect.fresh:
            # Already loaded; its first use evicts the others.
            self._operators.alone(effect.variant)
            self._post(Loaded(effect.variant, 0.0))
            return
        with self._lock:
            running = self._loads.get(effect.variant)
            since_s = self._clock() if running is None else running[0]
            self._loads[effect.variant] = (since_s, effect)
        if running is None:
            threading.Thread(target=self._load, args=(effect,), daemon=True).start()

    def unload(self, effect: Unload) -> None:
        self._operators.unload(effect.variant)

    def look(self, now: float) -> None:
        """Raise ``OperatorStuck`` if a batch on the thread runs for over ``STUCK_S``, a load for
        over ``LOAD_S``, the device is lost, or the thread that runs batches has died.

        A hanging job fails first: one call posts ``Failed``, the next raises, so that the node can
        forward the reason in between.
        """
        if self._stuck:
            raise OperatorStuck(self._stuck)
        running = self._running
        if running and now - running[1] > STUCK_S and not self._apart(running[0]):
            self._stuck = (
                f"{running[0]} has been running one batch for {STUCK_S:g} s; a thread cannot be "
                "ended; with `limits: {time: ...}` the variant runs in a process that can"
            )
            self._post(Failed(running[2], self._stuck))
            return
        if not self._thread.is_alive():
            raise OperatorStuck("the thread that runs batches has ended; a new process replaces it")
        for variant, (since_s, _) in list(self._loads.items()):
            if now - since_s > LOAD_S and not self._apart(variant):
                self._stuck = (
                    f"{variant} has been loading for {LOAD_S:g} s; a thread cannot be ended; "
                    "correct its load(), or load less"
                )
                self._post(Failed(variant, self._stuck))

    def close(self) -> None:
        self._jobs.put(None)
        if self._stuck:
            return
        if self._journal is not None:  # a regular end, not a crash
            self._journal.ended()
        if self._load_journal is not None:
            self._load_journal.forget()

    def _load(self, effect: Load) -> None:
        began, variant = self._clock(), effect.variant
        try:
            if effect.fresh:
                self._forget_code()
            self._note(effect)
            operator = self._made(variant)
        except BaseException as error:  # noqa: BLE001 - a user's class may raise SystemExit too
            if (newest := self._newest(effect)).fresh and newest is not effect:
                return self._load(newest)
            if device_lost(error):
                self._stuck = _lost(variant, error)
            elif self._load_journal is not None:
                with self._lock:
                    self._load_journal.failed(variant)
            self._post(_failed(variant, f"{variant} cannot be loaded: {_message(error)}", error))
            return
        if (newest := self._newest(effect)).fresh and newest is not effect:
            return self._load(newest)
        if self._load_journal is not None:
            with self._lock:
                self._load_journal.loaded(variant)
        self._operators.add(replace(effect, beside=newest.beside), operator)
        self._post(Loaded(variant, self._clock() - began))

    def _note(self, effect: Load) -> None:
        """Record the begin of a load that could end this process; raise ``OperatorFailed`` for a
        variant whose loads have ended too many."""
        if self._load_journal is None or self._apart(effect.variant):
            return
        why = self._load_journal.set_aside(effect.variant, fresh=effect.fresh)
        if why:
            raise OperatorFailed(why)
        with self._lock:
            self._load_journal.began(effect.variant)

    def _made(self, variant: str) -> Operator:
        """Return a variant that is loaded.

        An evicted model that holds a cycle keeps its memory until garbage is collected, which roles
        do seldom: a load without memory collects it and tries again.
        """
        try:
            return self._loaded(variant)
        except Exception as error:
            if not out_of_memory(error):
                raise
        gc.collect()
        return self._loaded(variant)

    def _loaded(self, variant: str) -> Operator:
        operator = self._make(variant)
        operator.load(self._device)
        return operator

    def _newest(self, effect: Load) -> Load:
        """Record the end of a load; return the newest request for its variant.

        If that one is fresh and came meanwhile, its load begins: the ended one may have read the
        code before the edit.
        """
        with self._lock:
            _, newest = self._loads.pop(effect.variant)
            if newest.fresh and newest is not effect:
                self._loads[effect.variant] = (self._clock(), newest)
            return newest

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if (event := self._run(job)) is None:
                return
            self._post(event)

    def _run(self, job: Infer) -> Event | None:
        """Run a batch and return its end; None if it lost the device: as after a crash, the journal
        still names its items, and the next process reads them again."""
        began = self._clock()
        self._running = (job.variant, began, job.job)
        try:
            operator = self._operators.use(job.variant)
            if self._journal is not None:
                self._journal.began(job.items)
            # Of several items each may run again alone; its operator may have changed them.
            values = own_values(job.values) if len(job.values) > 1 else job.values
            batch = TimedBatch(values, [d - began for d in job.deadlines])
            outputs = tuple(listed(operator.predict(batch)))
            raise_if_lost(outputs)
            ended: Event = Inferred(job.job, outputs, began, self._clock(), self._charged_s())
        # Including SystemExit and KeyboardInterrupt: a library that calls sys.exit must not end
        # the thread and leave a worker that reports ready but serves nothing.
        except BaseException as error:  # noqa: BLE001
            if device_lost(error):
                self._stuck = _lost(job.variant, error)
                return None
            text = str(error) if isinstance(error, OperatorFailed) else ""
            ended = _failed(job.job, text or f"{job.variant} raised {error_sentence(error)}", error)
        self._running = None
        if self._journal is not None:
            self._journal.ended()
        return ended


def _failed(job: int | str, text: str, error: BaseException) -> Failed:
    if isinstance(error, OperatorFailed):
        return Failed(job, text, error.trace)
    return Failed(job, with_frames(text, error), trace(error))


def _lost(variant: str, error: BaseException) -> str:
    return (
        f"{variant} lost the device ({error_sentence(error)}); every later batch of this process "
        "would fail, so it ends and is to be restarted"
    )


def _message(error: BaseException) -> str:
    """Return the message of a load error: an ``OperatorFailed``'s own, else type and message."""
    return str(error) if isinstance(error, OperatorFailed) else error_sentence(error)


class Emulation(Protocol):
    """A variant with latencies and outputs from its profile."""

    def latency_s(self, batch: int) -> float:
        """Return the seconds of a batch; raise ``ProfileError`` above the largest measured one."""

    def predict(self, values: list[Any]) -> list[Any]: ...


class EmulatedExecutor:
    """Executor of emulated devices: batches and loads end by the driver's timers.

    It needs no thread, so one process hosts many of them. A batch whose latency is unknown fails.
    """

    def __init__(
        self,
        make: Callable[[str], Emulation],
        load_s: Callable[[str], float],
        post_at: PostAt,
        clock: Clock,
    ) -> None:
        self._make = make
        self._load_s = load_s
        self._post_at = post_at
        self._clock = clock
        self._variants = LoadedVariants[Emulation]()
        self._loads: list[tuple[float, Load, Emulation]] = []  # loads under way, with their ends

    def infer(self, effect: Infer) -> None:
        began = self._clock()
        self._end_loads(effect.variant, began)
        variant = self._variants.use(effect.variant)
        try:
            ends = began + variant.latency_s(effect.cost)
        except ProfileError as error:
            self._post_at(began, Failed(effect.job, str(error)))
            return
        outputs = tuple(variant.predict(list(effect.values)))
        self._post_at(ends, Inferred(effect.job, outputs, began, ends))

    def load(self, effect: Load) -> None:
        seconds = self._load_s(effect.variant)
        ends_s = self._clock() + seconds
        self._loads.append((ends_s, effect, self._make(effect.variant)))
        self._post_at(ends_s, Loaded(effect.variant, seconds))

    def unload(self, effect: Unload) -> None:
        self._end_loads(effect.variant, self._clock())
        self._variants.unload(effect.variant)

    def _end_loads(self, used: str, now: float) -> None:
        """Hold the variants whose loads have ended by ``now``; that of ``used`` has in any case:
        the worker knows it, even if clock rounding differs."""
        under_way, self._loads = sorted(self._loads, key=itemgetter(0)), []
        for ends_s, load, emulation in under_way:
            if ends_s <= now or load.variant == used:
                self._variants.add(load, emulation)
            else:
                self._loads.append((ends_s, load, emulation))

    def look(self, now: float) -> None:
        """Do nothing: an emulated device cannot hang."""

    def close(self) -> None:
        """Do nothing: an emulated device holds no resources."""
