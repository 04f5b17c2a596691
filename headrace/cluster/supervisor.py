"""Keeps the roles of a pipeline running on this machine: start, restart, stop in order.

Every role is a process of its own session, so that Ctrl-C in the terminal reaches the supervisor
only and what a role leaves behind can be ended with it. A role whose supervisor has died ends by
itself (``follow_supervisor``).
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path

import headrace
from headrace.cluster.log_files import keep_last, rotate
from headrace.cluster.run_state import Process
from headrace.config.pipeline_file import Cluster
from headrace.errors import BAD_INPUT, Unsuccessful
from headrace.roles.logs import told

STOP_PATIENCE_S = 10.0  # from SIGTERM to SIGKILL
SOUND_AFTER_S = 60.0  # a role that ran so long begins anew with the shortest pause
LONGEST_PAUSE_S = 30.0
SUPERVISOR = "HEADRACE_SUPERVISOR"  # environment: the process that a role must not outlive
RESTARTED = "HEADRACE_RESTARTED"  # environment: how the process ended whose place this one takes
WATCH_S = 0.5
ROTATE_EVERY_S = 10.0

# One thread per model: the plan counts workers, so a library must not take the others' cores.
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Role:
    """A process to run: its name, the command ``kind`` and what follows the pipeline file."""

    name: str
    kind: str
    arguments: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  # as they call themselves in reports
    metrics_port: int | None = None


def roles(cluster: Cluster) -> tuple[Role, ...]:
    """Every role of a cluster section, in the order in which they start.

    With ``metrics_port`` the first has that port, the next one the next.
    """
    every = (
        Role("control", "control"),
        *_shared("egress", cluster.egress),
        *(
            role
            for device, count in cluster.devices
            for role in workers(device, count, cluster.host_device(device))
        ),
        *_shared("ingress", cluster.ingress),
    )
    first = cluster.metrics_port
    if first is None:
        return every
    ports = range(first, first + len(every)) if first else repeat(0)  # 0: each any free one
    return tuple(_with_port(role, port) for role, port in zip(every, ports, strict=False))


def _with_port(role: Role, port: int) -> Role:
    return replace(
        role, metrics_port=port, arguments=(*role.arguments, "--metrics-port", str(port))
    )


def _shared(kind: str, of: int) -> list[Role]:
    return [
        Role(f"{kind}-{i}", kind, ("--share", f"{i}/{of}"), (f"{kind}-{i}",)) for i in range(of)
    ]


def workers(device: str, count: int, host: str = "") -> list[Role]:
    """A process for each worker; emulated ones share one, since they only wait.

    ``host`` is the device that a type's workers run on; "": the device itself.
    """
    name = device.replace(":", "")
    named = [f"{name}-{i}" for i in range(count)]
    if (host or device) == "emulated":
        # A single one keeps the plain name (headrace/roles/wiring.py).
        nodes = tuple(named) if count > 1 else (name,)
        return [
            Role(
                name,
                "worker",
                ("--name", name, "--device", device, "--count", str(count)),
                nodes,
            )
        ]
    return [Role(each, "worker", ("--name", each, "--device", device), (each,)) for each in named]


def pause_s(restarts: int) -> float:
    """How long to wait before the n-th restart in a row: half a second, doubled each time."""
    return min(0.5 * 2.0 ** max(0, restarts - 1), LONGEST_PAUSE_S)


@dataclass(slots=True)
class _Child:
    role: Role
    process: "subprocess.Popen[bytes] | None" = None
    began_s: float = 0.0
    restarts: int = 0
    due_s: float = 0.0
    ended: str = ""  # how it ended the last time


@dataclass(slots=True)
class Supervisor:
    """The roles of one pipeline file on one broker. ``tend`` must be called a few times a second.

    ``said`` hears what happens, one line each. ``started`` has every process ever started.
    """

    file: Path
    bootstrap: str
    directory: Path
    said: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    started: list[Process] = field(default_factory=list)
    _children: dict[str, _Child] = field(default_factory=dict)
    _rotate_s: float = 0.0  # when to look at the size of the logs again

    def start(self, wanted: Iterable[Role]) -> None:
        """Start these roles, each with an empty log; the last run's is kept beside it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for role in wanted:
            keep_last(self.log(role.name))
            self._children[role.name] = child = _Child(role)
            self._spawn(child)

    def log(self, role: str) -> Path:
        """Where a role's output goes."""
        return self.directory / f"{role}.log"

    @property
    def running(self) -> tuple[Process, ...]:
        """The roles' processes as they are now."""
        pids = {c.process.pid for c in self._children.values() if c.process is not None}
        return tuple(process for process in self.started if process.pid in pids)

    def tend(self) -> None:
        """Start again what has ended; raises ``Unsuccessful`` for a role that can never run."""
        now = self.clock()
        if now >= self._rotate_s:
            self._rotate_s = now + ROTATE_EVERY_S
            for name in self._children:
                rotate(self.log(name))
        for child in self._children.values():
            process = child.process
            if process is None:
                if now >= child.due_s:
                    self._spawn(child)
            elif process.poll() is not None:
                self._ended(child, process, now)

    def _ended(self, child: _Child, process: "subprocess.Popen[bytes]", now: float) -> None:
        code = process.returncode
        end_session(process.pid)  # whatever it had started
        word = last_word(self.log(child.role.name))
        if code == BAD_INPUT:
            raise Unsuccessful(f"{child.role.name} cannot run: {word}")
        child.restarts = child.restarts + 1 if now - child.began_s < SOUND_AFTER_S else 1
        child.process, child.due_s = None, now + pause_s(child.restarts)
        child.ended = f"{'ended with' if code >= 0 else 'was'} {how_it_ended(code)}"
        self.said(
            f"{child.role.name} ended ({how_it_ended(code)}{': ' + word if word else ''}); "
            f"it is started again in {pause_s(child.restarts):g} s"
        )

    def _spawn(self, child: _Child) -> None:
        role = child.role
        command = [
            *(sys.executable, "-m", "headrace", role.kind, str(self.file)),
            *("--bootstrap", self.bootstrap, *role.arguments),
        ]
        with self.log(role.name).open("ab") as log:
            child.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**environment(os.environ, os.getpid()), RESTARTED: child.ended},
            )
        child.began_s = self.clock()
        self.started.append(Process.found(role.name, child.process.pid))

    # ------------------------------------------------------------------ stopping

    def stop(self, drained: Callable[[], bool], drain_s: float) -> None:
        """Ingress first; once ``drained`` (or after ``drain_s``) control, workers, egress.

        Control before the workers: it would take them for dead and leave a plan without them.
        """
        self._stop("ingress")
        until = self.clock() + drain_s
        while self.clock() < until and self._serving() and not drained():
            time.sleep(0.1)
        for kind in ("control", "worker", "egress"):
            self._stop(kind)

    def _serving(self) -> bool:
        """Somebody is there to drain what is left."""
        alive = {c.role.kind for c in self._children.values() if c.process and not c.process.poll()}
        return {"worker", "egress"} <= alive

    def _stop(self, kind: str) -> None:
        mine = [c for c in self._children.values() if c.role.kind == kind and c.process]
        for child in mine:
            assert child.process is not None
            # At SIGTERM a worker would wait for others to take its work over.
            child.process.send_signal(signal.SIGINT if kind == "worker" else signal.SIGTERM)
        until = self.clock() + STOP_PATIENCE_S
        for child in mine:
            assert child.process is not None
            try:
                child.process.wait(max(0.0, until - self.clock()))
            except subprocess.TimeoutExpired:
                self.said(f"{child.role.name} did not end within {STOP_PATIENCE_S:g} s; killed")
            end_session(child.process.pid)
            child.process.wait()
            child.process = None

    def kill(self) -> None:
        """End everything at once."""
        for child in self._children.values():
            if child.process is not None:
                end_session(child.process.pid)
                child.process.wait()
                child.process = None


def environment(base: Mapping[str, str], supervisor: int | None) -> dict[str, str]:
    """A child's environment: this headrace is importable, one thread per model, and which
    process it must not outlive (None: it may)."""
    root = str(Path(headrace.__file__).parents[1])
    paths = [root, *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **THREADS,
        **base,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONUNBUFFERED": "1",
        **({} if supervisor is None else {SUPERVISOR: str(supervisor)}),
    }


def how_it_ended(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def last_word(log: Path) -> str:
    """What the last line of a log says of the role's end, "" where it says nothing."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace")[-4000:].splitlines()
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return told(last)[:300]


def end_session(leader: int) -> None:
    """Kill a role and all it has started; it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def follow_supervisor(env: Mapping[str, str] = os.environ) -> None:
    """End this process when the supervisor that started it is gone; called by every role.

    SIGTERM first, so that work is put down cleanly, and a hard end after ``STOP_PATIENCE_S``.
    """
    if SUPERVISOR in env:
        parent = int(env[SUPERVISOR])
        threading.Thread(target=_watch, args=(parent,), name="supervisor", daemon=True).start()


def _watch(parent: int) -> None:
    # Works on every system, unlike PR_SET_PDEATHSIG, which also fires when a mere thread ends.
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_PATIENCE_S)
    end_session(os.getpid())
