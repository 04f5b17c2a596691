"""Supervise the roles of a pipeline on this machine: start, restart, stop in order.

Every role runs in its own session, so that Ctrl-C in the terminal reaches the supervisor only, and
the role's children can be killed with it. A role whose supervisor has died ends itself
(``follow_supervisor``).
"""

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cluster.log_files import keep_last, remove, rotate
from headrace.config.pipeline_file import PipelineFile
from headrace.config.topology import Role
from headrace.config.topology import profilers as profiler_roles
from headrace.errors import BAD_INPUT, Unsuccessful
from headrace.processes import (
    ALIVE,
    HEADRACE,
    RESTARTED,
    STOP_PATIENCE_S,
    Process,
    end_session,
    environment,
    how_it_ended,
    run_directory,
)
from headrace.roles.observability.log_format import log_text

SOUND_AFTER_S = 60.0  # a role that ran this long restarts after the shortest pause
LONGEST_PAUSE_S = 30.0
ROTATE_EVERY_S = 10.0
RETIRED_LOGS = 20  # of the last retired roles; every rented worker has a new name


def pause_s(restarts: int) -> float:
    """Return the pause before the n-th restart in a row: 0.5 s, doubled each time, 30 s at most."""
    return min(0.5 * 2.0 ** max(0, restarts - 1), LONGEST_PAUSE_S)


HUNG_S = 30.0  # a role is killed this long after its last sign of life
# So is a role without a first sign for this time; an unreachable broker ends a start earlier. A
# profiler takes minutes to load libraries and all of its models.
BEGINS_WITHIN_S = 900.0


@dataclass(slots=True)
class _Child:
    role: Role
    process: "subprocess.Popen[bytes] | None" = None
    began_s: float = 0.0
    restarts: int = 0
    needed: bool = True  # the run ends if the role refuses its first start
    due_s: float = 0.0
    ended: str = ""  # the last exit status in words
    sign: int = -1  # the last modification of its ALIVE file in ns; sign_s: when it was seen
    sign_s: float = 0.0
    hung: bool = False
    retired: bool = False


@dataclass(slots=True)
class Supervisor:
    """The roles of one pipeline file on one broker. Call ``tend`` a few times a second.

    ``said`` receives one line for each event. ``started`` has the processes that were started and
    whose end has not been seen.
    """

    file: Path
    bootstrap: str
    directory: Path
    said: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    started: list[Process] = field(default_factory=list)
    _children: dict[str, _Child] = field(default_factory=dict)
    _retired: deque[str] = field(default_factory=deque)  # names whose logs are kept
    _rotate_s: float = 0.0  # when to check the sizes of the logs next

    def start(self, wanted: Iterable[Role]) -> None:
        """Start these roles, each with an empty log; the last run's log is kept."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for role in wanted:
            keep_last(self.log(role.name))
            self._children[role.name] = child = _Child(role)
            self._spawn(child)

    def start_at(self, role: Role, due_s: float) -> None:
        """Start a role at a time of ``clock``, in ``tend``; the run goes on if it cannot start."""
        keep_last(self.log(role.name))
        self._children[role.name] = _Child(role, due_s=due_s, needed=False)

    def retire(self, name: str) -> None:
        """End a role for good: SIGTERM lets it hand over its work; ``tend`` forgets it."""
        child = self._children[name]
        child.retired = True
        if child.process is not None:
            child.process.send_signal(signal.SIGTERM)

    def log(self, role: str) -> Path:
        """Return the path of a role's log."""
        return self.directory / f"{role}.log"

    @property
    def running(self) -> tuple[Process, ...]:
        """The roles' present processes."""
        pids = {c.process.pid for c in self._children.values() if c.process is not None}
        return tuple(process for process in self.started if process.pid in pids)

    def tend(self) -> None:
        """Restart ended roles, kill hung ones and rotate logs; raises ``Unsuccessful`` for a role
        that can never run."""
        now = self.clock()
        if now >= self._rotate_s:
            self._rotate_s = now + ROTATE_EVERY_S
            self._rotate()
        for child in [*self._children.values()]:
            if child.retired:
                self._retire(child)
            else:
                self._tend(child, now)

    def _rotate(self) -> None:
        for name in self._children:
            with contextlib.suppress(OSError):  # no room for the copy: the log grows until there is
                rotate(self.log(name))

    def _tend(self, child: _Child, now: float) -> None:
        process = child.process
        if process is None:
            if now >= child.due_s:
                self._start_again(child, now)
        elif process.poll() is not None:
            self._ended(child, process, now)
        elif hung := self._hangs(child, now):
            self.said(f"{child.role.name} {hung}; killing it")
            end_session(process.pid)

    def _start_again(self, child: _Child, now: float) -> None:
        """Start a role, or try again later where the machine has no room for it."""
        try:
            self._spawn(child)
        except OSError as error:
            child.restarts += 1
            child.due_s = now + pause_s(child.restarts)
            self.said(
                f"{child.role.name} failed to start: {error}; retrying in "
                f"{pause_s(child.restarts):g} s"
            )

    def alive(self, role: str) -> Path:
        """Return the file that a working role touches every second."""
        return self.directory / f"{role}.alive"

    def _retire(self, child: _Child) -> None:
        process = child.process
        if process is not None and process.poll() is None:
            return
        if process is not None:
            end_session(process.pid)
            self._forget(process.pid)
        name = child.role.name
        del self._children[name]
        for path in self.directory.glob(f"{name}.*"):
            if not path.name.startswith(f"{name}.log"):
                path.unlink(missing_ok=True)
        self._retired.append(name)
        while len(self._retired) > RETIRED_LOGS:
            remove(self.log(self._retired.popleft()))

    def _forget(self, pid: int) -> None:
        """Forget an ended process."""
        self.started = [each for each in self.started if each.pid != pid]

    def _hangs(self, child: _Child, now: float) -> str:
        """Return what a role that hangs has not done, once per hang, else ""."""
        try:
            sign = self.alive(child.role.name).stat().st_mtime_ns
        except OSError:  # the role has not begun to work
            sign = child.sign
        if sign != child.sign:
            child.sign, child.sign_s, child.hung = sign, now, False
        if child.sign < 0:
            since_s, most_s, what = child.began_s, BEGINS_WITHIN_S, "did not start within"
        else:
            since_s, most_s, what = child.sign_s, HUNG_S, "has made no progress for"
        if child.hung or now - since_s <= most_s:
            return ""
        child.hung = True
        return f"{what} {most_s:g} s"

    def _ended(self, child: _Child, process: "subprocess.Popen[bytes]", now: float) -> None:
        code = process.returncode
        end_session(process.pid)  # its children
        self._forget(process.pid)
        word = last_word(self.log(child.role.name))
        if self._refuses(child, code):
            raise Unsuccessful(f"{child.role.name} cannot run: {word}")
        child.restarts = child.restarts + 1 if now - child.began_s < SOUND_AFTER_S else 1
        child.process, child.due_s = None, now + pause_s(child.restarts)
        child.ended = f"{'ended with' if code >= 0 else 'was'} {how_it_ended(code)}"
        self.said(
            f"{child.role.name} exited ({how_it_ended(code)}{': ' + word if word else ''}); "
            f"restarting in {pause_s(child.restarts):g} s"
        )

    def _refuses(self, child: _Child, code: int) -> bool:
        """Return whether a role that ended with an exit code can never run.

        A later start may be refused, too: the pipeline file was edited meanwhile, a port is taken,
        or reports of its earlier life are late. The others serve, so it is tried again.
        """
        refused = code == BAD_INPUT and not self.alive(child.role.name).exists()
        return refused and child.needed and child.restarts == 0

    def _spawn(self, child: _Child) -> None:
        role = child.role
        command = [
            *(*HEADRACE, role.kind, str(self.file)),
            *("--bootstrap", self.bootstrap, *role.arguments),
        ]
        self.alive(role.name).unlink(missing_ok=True)
        child.sign, child.hung = -1, False
        with self.log(role.name).open("ab") as log:
            child.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **environment(os.environ, os.getpid()),
                    RESTARTED: child.ended,
                    ALIVE: str(self.alive(role.name).absolute()),
                },
            )
        child.began_s = self.clock()
        self.started.append(Process.found(role.name, child.process.pid))

    # ------------------------------------------------------------------ stopping

    def stop(self, drained: Callable[[], bool], drain_s: float) -> None:
        """Stop the gateways, which answer the requests in flight, then ingress; once ``drained``
        (or after ``drain_s``) stop control, workers, egress, and the others.

        Control stops before the workers: it would detect them as dead and issue a plan without
        them.
        """
        self.stop_all("gateway")
        self.stop_all("ingress")
        until = self.clock() + drain_s
        while self.clock() < until and self._serving() and not drained():
            time.sleep(0.1)
        for kind in ("control", "dispatcher", "worker", "egress"):
            self.stop_all(kind)
        for kind in sorted({child.role.kind for child in self._children.values()}):
            self.stop_all(kind)

    def _serving(self) -> bool:
        """Return whether a worker and an egress run, to drain queries in flight."""
        alive = {c.role.kind for c in self._children.values() if c.process and not c.process.poll()}
        return {"worker", "egress"} <= alive

    def stop_all(self, kind: str) -> None:
        """Stop every role of a kind."""
        mine = [c for c in self._children.values() if c.role.kind == kind and c.process]
        for child in mine:
            assert child.process is not None
            # At SIGTERM a worker would wait for others to take over its work.
            child.process.send_signal(signal.SIGINT if kind == "worker" else signal.SIGTERM)
        until = self.clock() + STOP_PATIENCE_S
        for child in mine:
            assert child.process is not None
            try:
                child.process.wait(max(0.0, until - self.clock()))
            except subprocess.TimeoutExpired:
                self.said(f"{child.role.name} did not stop within {STOP_PATIENCE_S:g} s; killed")
            end_session(child.process.pid)
            child.process.wait()
            child.process = None

    def kill(self) -> None:
        """Kill all roles at once."""
        for child in self._children.values():
            if child.process is not None:
                end_session(child.process.pid)
                child.process.wait()
                child.process = None


def last_word(log: Path) -> str:
    """Return the text of a log's last line, 300 characters at most; "" without one."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace")[-4000:].splitlines()
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return log_text(last)[:300]


@contextlib.contextmanager
def running_profilers(
    file: PipelineFile, bootstrap: str, count: int, said: Callable[[str], None]
) -> Iterator[tuple[Callable[[], None], Callable[[], tuple[Process, ...]]]]:
    """Run ``count`` profilers within the block; yield two functions.

    The first restarts ended profilers: call it a few times a second; it raises ``Unsuccessful``
    for one that can never run. The second returns the running processes.
    """
    directory = run_directory(file.pipeline.name)
    supervisor = Supervisor(file.path, bootstrap, directory, said)
    supervisor.start(profiler_roles(count, "search-profiler"))  # `up` may run others
    try:
        yield supervisor.tend, lambda: supervisor.running
    finally:
        supervisor.stop_all("profiler")
