"""Run an operator with time or memory limits in its own process.

A batch that exceeds the time limit, or a process that exceeds the memory limit or dies, fails
that batch with a sentence; a new process starts to load, and the worker continues. Values travel
over a pipe between the worker and its own child process.
"""

import contextlib
import os
import signal
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import psutil

from headrace.config.pipeline_file import make_importable
from operators.calls.device_faults import device_lost, raise_if_lost
from operators.calls.operator_outputs import listed
from operators.calls.user_frames import OperatorFailed, error_sentence, trace, with_frames
from operators.models.loading import load_operator
from operators.models.warm_up import warm_up
from operators.serving.fanout import reason_of
from operators.timed_batch import OutOfTime, delayed_batch
from schemas.pipeline import Variant
from streams.live.executors import LOAD_S, STUCK_S

LOOK_S = 0.02  # interval between checks of a running batch's limits
STALLED_S = 5.0  # a process that takes nothing of a batch for longer, or sends no more, is replaced
ORPHAN_S = 1.0  # interval at which the process checks that its worker lives
MEGABYTE = 1e6

Loader = Callable[[Variant], Any]


@dataclass(frozen=True, slots=True)
class _Outputs:
    """The outputs of ``predict``."""

    values: Any


@dataclass(frozen=True, slots=True)
class _Raised:
    """An exception of the operator: a sentence with the user's frames, and a trace for the log."""

    sentence: str
    trace: str = ""


class Isolated:
    """An operator (``load``, ``predict``) that runs in another process.

    Both raise ``OperatorFailed`` with the operator's message or the reason why its process ended.
    A load may take ``load_s``; a batch of a variant without a time limit ``batch_s``. A process
    that takes nothing of a batch for ``stalled_s``, or for the batch's limit if that is longer, is
    replaced.
    """

    def __init__(
        self,
        variant: Variant,
        pipeline_file: Path,
        make: Loader = load_operator,
        *,
        load_s: float = LOAD_S,
        batch_s: float = STUCK_S,
        stalled_s: float = STALLED_S,
    ) -> None:
        self._variant = variant
        self._load_s = load_s
        self._batch_s = batch_s if variant.time_limit_s is None else variant.time_limit_s
        self._stalled_s = max(stalled_s, self._batch_s)
        self._file = pipeline_file
        self._make = make
        self._device = ""
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._loaded = False
        self._end: Callable[[], object] = _nothing

    def load(self, device: str) -> None:
        """Start the process and wait until it has loaded."""
        self._device = device
        self._start()
        self._await_load()

    def predict(self, batch: list[Any]) -> list[Any]:
        """Run one batch within the limits, in a new process where the last one ended idle."""
        asked_s = time.monotonic()
        if self._process is None or not self._process.is_alive():
            self._again()
        self._await_load()
        pipe = self._pipe
        assert pipe is not None
        with contextlib.suppress(OSError):  # the process has ended, as the wait for its answer sees
            pipe.send(delayed_batch(batch, time.monotonic() - asked_s))
        said = self._answer(self._batch_s, "took")
        if isinstance(said, _Raised):
            raise OperatorFailed(f"{self._variant.key} raised {said.sentence}", said.trace)
        outputs: list[Any] = said.values
        return outputs

    # ------------------------------------------------------------------ the process

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        _bound(self._pipe, self._stalled_s)
        # Not a multiprocessing daemon: an operator may start children.
        self._process = context.Process(
            target=_serve, args=(self._variant, self._device, self._file, self._make, theirs)
        )
        self._process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self._loaded = False
        # A swapped-out variant is dropped without a call to close, so its process ends with it.
        self._end = weakref.finalize(self, _kill, self._process, self._pipe)

    def _await_load(self) -> None:
        if self._loaded:
            return
        said = self._answer(self._load_s, "loading took")
        if isinstance(said, _Raised):
            self._again()
            raise OperatorFailed(said.sentence, said.trace)
        self._loaded = True

    def _again(self) -> None:
        self._end()
        self._start()

    def _answer(self, within_s: float, what: str) -> Any:
        began = time.monotonic()
        pipe, ended = self._pipe, ""
        assert pipe is not None
        while not ended:
            with contextlib.suppress(EOFError, OSError):
                if pipe.poll(LOOK_S):
                    return pipe.recv()
            ended = self._broken(time.monotonic() - began, within_s, what)
        self._again()
        raise OperatorFailed(f"{self._variant.key} {ended}; its process was started again")

    def _broken(self, took_s: float, within_s: float, what: str) -> str:
        """Return the limit that is broken, as a phrase, or ""."""
        process, most = self._process, self._variant.memory_limit_bytes
        assert process is not None
        if not process.is_alive():
            return f"ended its process with {_code(process.exitcode)}"
        if took_s > within_s:
            return f"{what} longer than its limit of {within_s:g} s"
        used = _used_bytes(process.pid) if most is not None else 0
        if most is not None and used > most:
            return f"used {used / MEGABYTE:.0f} MB, its limit is {most / MEGABYTE:.0f} MB"
        return ""


def _nothing() -> None:
    """Do nothing: before the first start there is no process to kill."""


def _bound(pipe: Connection, most_s: float) -> None:
    """Let a send or a receive fail where the other process does not go on for ``most_s``."""
    whole_s = int(most_s)
    bound = struct.pack("@ll", whole_s, int((most_s - whole_s) * 1e6))
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)


def _kill(process: SpawnProcess, pipe: Connection) -> None:
    """Kill a process with the processes that its operator started."""
    started: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        started = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for each in started:
        with contextlib.suppress(psutil.Error):
            each.kill()
    process.join()
    pipe.close()


def _code(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"code {code}"


def _used_bytes(pid: int | None) -> int:
    """Return the resident memory of the process, bytes; 0 once it has ended."""
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


# ---------------------------------------------------------------------- in the child process


def _serve(
    variant: Variant, device: str, pipeline_file: Path, make: Loader, pipe: Connection
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker handles ctrl-C and ends this process
    worker = parent_process()  # not os.getppid(): the worker may have ended meanwhile
    assert worker is not None
    threading.Thread(target=_leave_with, args=(worker.pid,), daemon=True).start()
    make_importable(pipeline_file)
    own = os.getpid()
    with contextlib.suppress(EOFError, ConnectionError):
        operator, said = _loaded(variant, device, make)
        while True:
            if os.getpid() != own:
                os._exit(0)  # a copy that the operator forked: its answers would be those of others
            _hand_over(pipe, said)
            if operator is None:
                return
            said = _predicted(operator, pipe.recv())


def _loaded(variant: Variant, device: str, make: Loader) -> tuple[Any, _Outputs | _Raised]:
    """Return the loaded operator, None if it cannot be loaded, and what to tell the worker."""
    try:
        operator = make(variant)
        operator.load(device)
        warm_up(operator, variant)
    except BaseException as error:  # noqa: BLE001 - a user's class; the worker gets its message
        return None, _load_failed(error)
    return operator, _Outputs(None)


def _hand_over(pipe: Connection, said: _Outputs | _Raised) -> None:
    try:
        pipe.send(said)
    except OSError:
        raise  # the worker is gone
    except Exception as error:  # noqa: BLE001 - pickling a user's values may raise anything
        pipe.send(_Raised(f"outputs that cannot be handed over: {error}"))


def _predicted(operator: Any, batch: list[Any]) -> _Outputs | _Raised:
    try:
        outputs = listed(operator.predict(batch))
        raise_if_lost(outputs)
        return _Outputs([_portable(each) for each in outputs])
    # Including SystemExit, and what libraries in Rust raise: a new process would load anew.
    except BaseException as error:
        if device_lost(error):
            raise  # this process can use the device no more; the worker starts another one
        return _Raised(with_frames(error_sentence(error), error), trace(error))


def _portable(output: Any) -> Any:
    """Return an output; in place of an exception one with the same reason.

    A user's exception may not survive the pipe, and its frames do not.
    """
    if not isinstance(output, Exception) or isinstance(output, OutOfTime):
        return output
    return OperatorFailed(reason_of(output))


def _load_failed(error: BaseException) -> _Raised:
    own_message = isinstance(error, OperatorFailed)
    text = str(error) if own_message else with_frames(error_sentence(error), error)
    return _Raised(text, "" if own_message else trace(error))


def _leave_with(parent: int) -> None:
    """Exit this process once its parent is gone, whatever the operator is doing."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_S)
    os._exit(1)
