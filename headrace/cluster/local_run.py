"""`headrace up` and `headrace down`: start a pipeline on this machine, supervise it, end it."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from types import FrameType

from headrace.client.backlog import Backlog
from headrace.client.topic_clients import Commander, PlanTail, Tail, decoded
from headrace.cluster.device_budget import outnumbered, overbooked
from headrace.cluster.device_rental import CommandedDevices, DeviceRental, LocalDevices
from headrace.cluster.page_address import page_address, with_address
from headrace.cluster.run_state import RunState, clear_state, neighbours, read_state, write_state
from headrace.cluster.supervisor import Supervisor
from headrace.config.cluster import SUPERVISOR
from headrace.config.pipeline_file import PipelineFile, search_space
from headrace.config.topology import file_roles
from headrace.errors import Interrupted, Unsuccessful
from headrace.machine import cores
from headrace.planning.profiler_pings import await_profilers
from headrace.processes import Process, end_session
from headrace.status.readiness import Readiness
from headrace.terminal import Advance, counting, say
from schemas.effects import REPORTS
from schemas.records import Plan
from streams.kafka.admin.preflight import prepare
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.topics import physical

READY_WITHIN_S = 180.0  # torch loads for half a minute on a busy laptop
ASK_CONTROL_EVERY_S = 5.0
UNDERSERVED_S = 5.0  # after this time a plan without workers for a task is final
TEND_EVERY_S = 0.2
DOWN_WITHIN_S = 90.0
ENDED_WITHIN_S = 12.0
DRAIN_MORE_S = 2.0  # beyond the SLO and grace


@dataclass(slots=True)
class ReceivedSignal:
    """The last signal received; 0 for none."""

    signal: int = 0
    _interrupts: bool = False

    def take(self, number: int) -> None:
        """Record a signal; raise where the code in progress is to be interrupted.

        That is ``Interrupted`` inside ``interrupting``, and ``KeyboardInterrupt`` for a second
        SIGINT.
        """
        again = self.signal == signal.SIGINT == number
        self.signal = number
        if again:
            raise KeyboardInterrupt
        if self._interrupts:
            raise Interrupted

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Let a signal end the block with ``Interrupted`` instead of waiting for its end."""
        if self.signal:
            raise Interrupted
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False


@contextlib.contextmanager
def listening() -> Iterator[ReceivedSignal]:
    """Record SIGTERM and SIGINT instead of ending; a second SIGINT raises ``KeyboardInterrupt``."""
    received = ReceivedSignal()

    def note(number: int, _frame: FrameType | None) -> None:
        received.take(number)

    before = {n: signal.signal(n, note) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class LocalRun:
    """A pipeline's roles on this machine, with the state file that other terminals read."""

    def __init__(
        self,
        file: PipelineFile,
        kafka: KafkaConfig,
        directory: Path,
        *,
        broker_started: bool = False,
        said: Callable[[str], None] = say,
    ) -> None:
        self.name = file.pipeline.name
        self.bootstrap = kafka.bootstrap
        self.directory = directory
        self._file = file
        self._said = said
        self._kafka = kafka
        self._rental: DeviceRental | None = None
        self.page = page_address(file.cluster.dashboard_port)
        self.gateways = file.cluster.gateway
        every = file_roles(file)
        self.roles = with_address(every, self.page, directory)
        self.supervisor = Supervisor(file.path, kafka.bootstrap, directory, said)
        self._state = RunState(
            pipeline=file.pipeline.name,
            file=str(file.path),
            bootstrap=kafka.bootstrap,
            supervisor=Process.found("up", os.getpid()),
            broker_started=broker_started,
            devices=file.cluster.reserved,
            share=file.cluster.share,
            tasks_per_device=file.cluster.tasks_per_device,
        )

    @property
    def nodes(self) -> tuple[str, ...]:
        """The node names of the roles in reports."""
        return tuple(node for role in self.roles for node in role.nodes)

    def start(self) -> None:
        """Create the topics and start every role. Raises ``BrokerError`` and ``Unsuccessful``."""
        claim(self.directory)
        alone = outnumbered(self._state, cores())
        for warning in (*alone, *overbooked(self._state, neighbours(self.directory), cores())):
            self._said(warning)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._note()  # before the topics, which take seconds: another `up` must see this one
        prepare(self._kafka, self._file.pipeline, "operator")
        if self.page is not None:
            self.page.keep(self.directory)
        self.supervisor.start(self.roles)
        self._note()
        if self._file.cluster.scale == SUPERVISOR:
            self._rental = self._renting()

    def _renting(self) -> DeviceRental:
        """Return the follower that rents devices by the plans."""
        cluster = self._file.cluster
        local = LocalDevices(cluster, self.supervisor)
        command = cluster.scale_command
        folder = self._file.path.parent
        actuator = CommandedDevices(command, folder, self._said) if command else local
        plans = PlanTail(self._kafka)
        return DeviceRental(self.name, local.counts, actuator, plans, self._said)

    def tend(self) -> None:
        """Restart ended roles; raises ``Unsuccessful`` for a role that can never run."""
        self.supervisor.tend()
        if self._rental is not None:
            self._rental.tend()
        with contextlib.suppress(OSError):  # the disk is full: noted once it has room
            self._note()

    def _note(self, *, ready: bool | None = None) -> None:
        state = replace(
            self._state,
            roles=self.supervisor.running,
            ready=self._state.ready if ready is None else ready,
        )
        if state != read_state(self.directory):
            write_state(self.directory, state)
        self._state = state

    def await_ready(self, received: ReceivedSignal) -> Plan:
        """Wait until every node serves and every profiler takes requests; return the plan in
        force, which may be infeasible: a command can change that, and needs a running pipeline.

        Raises ``Unsuccessful`` after ``READY_WITHIN_S`` and for a worker that cannot load,
        ``Interrupted`` on a signal.
        """
        # 0.1 s: processes on one machine share a clock, but start times are read later.
        since_s = self._state.supervisor.started_s - 0.1
        readiness = Readiness(self._file.pipeline, self.nodes, since_s)
        with (
            contextlib.closing(_Watch(self._kafka, self._file.pipeline.name, since_s)) as watch,
            counting(f"starting {self.name}", len(self.nodes)) as advance,
        ):
            began = settled = time.monotonic()
            while readiness.missing():
                self._step(readiness, watch, advance)
                if received.signal:
                    raise Interrupted
                now = time.monotonic()
                settled = settled if readiness.underserved else now
                if now - settled > UNDERSERVED_S:
                    break
                self._not_forever(now - began, readiness)
        assert readiness.plan is not None
        self._await_profilers(received)
        self._note(ready=True)
        return readiness.plan

    def _await_profilers(self, received: ReceivedSignal) -> None:
        names = [role.name for role in self.roles if role.kind == "profiler"]

        def tend() -> None:
            if received.signal:
                raise Interrupted
            self.tend()

        if names:
            sessions = search_space(self._file)
            await_profilers(self._kafka, self.name, sessions, READY_WITHIN_S, tend, names)

    def _not_forever(self, waited_s: float, readiness: Readiness) -> None:
        if waited_s > READY_WITHIN_S:
            raise Unsuccessful(
                f"{self.name} did not come up within {READY_WITHIN_S:g} s: {readiness.missing()}; "
                f"see the logs in {self.directory}"
            )

    def _step(self, readiness: Readiness, watch: "_Watch", advance: Advance) -> None:
        self.tend()
        readiness.see(watch.records(TEND_EVERY_S))
        readiness.answered = readiness.answered or watch.control_answers(readiness.reporting)
        advance(readiness.settled(), readiness.missing())

    def stop(self) -> None:
        """Drain queries in flight, end the roles in order and remove the state file."""
        pipeline = self._file.pipeline
        backlog = Backlog(self._kafka, pipeline)

        def drained() -> bool:
            try:
                return backlog.is_empty()
            except BrokerError:
                return True  # nothing can be drained without a broker

        if self._rental is not None:
            self._rental.close()
        self.supervisor.stop(drained, pipeline.slo_s + pipeline.grace_s + DRAIN_MORE_S)
        self._forget()

    def kill(self) -> None:
        """End the roles at once."""
        self.supervisor.kill()
        if self._rental is not None:
            self._rental.kill()
        self._forget()

    def _forget(self) -> None:
        """Remove the state file, unless it is that of another supervisor."""
        if other_run(self.directory) is None:
            clear_state(self.directory)


class _Watch:
    """Reads plans, reports and the control app's results while a pipeline starts."""

    def __init__(self, kafka: KafkaConfig, pipeline: str, since_s: float) -> None:
        self._plans = PlanTail(kafka)
        self._reports = Tail(kafka, physical(pipeline, REPORTS), since_s=since_s)
        self._commander = Commander(kafka, pipeline)
        self._asked: set[str] = set()
        self._ask_s = 0.0

    def records(self, timeout_s: float) -> list[object]:
        values = [*self._plans.take(0), *self._reports.take(timeout_s)]
        return [decoded(value) for value in values]

    def control_answers(self, reporting: bool) -> bool:
        """Return whether the control app has answered; asks it once all nodes report."""
        now = time.monotonic()
        if reporting and now >= self._ask_s:
            self._ask_s = now + ASK_CONTROL_EVERY_S
            self._asked.add(self._commander.give("replan", {}))
        return any(result.id in self._asked for result in self._commander.results(0))

    def close(self) -> None:
        """Close the Kafka clients."""
        for each in (self._plans, self._reports, self._commander):
            each.close()


def claim(directory: Path) -> RunState | None:
    """Claim the run directory; end the roles that a dead supervisor left behind, and return its
    state (None: there was none).

    Raises ``Unsuccessful`` if another supervisor runs this pipeline here.
    """
    state = read_state(directory)
    if state is None:
        return None
    if other_run(directory) is not None:
        raise Unsuccessful(
            f"pipeline {state.pipeline!r} is up already (process {state.supervisor.pid}); "
            f"`headrace down {state.file}` ends it"
        )
    end_roles(state)
    clear_state(directory)
    return state


@contextlib.contextmanager
def sole(directory: Path) -> Iterator[None]:
    """Keep every other `up` out of the run directory during the block.

    Two that begin at the same time find no state of the other. Raises ``Unsuccessful`` for a
    directory that another `up` holds, or that cannot be written.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (directory / "up.lock").open("w")
    except OSError as error:
        raise Unsuccessful(
            f"the run directory {directory} cannot be written ({error.strerror}); set "
            "HEADRACE_HOME to a directory of your own"
        ) from error
    with file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError as error:
            raise Unsuccessful(
                f"another `headrace up` is starting pipeline {directory.name!r}; wait until it is "
                "up, or end it"
            ) from error
        yield


def other_run(directory: Path) -> RunState | None:
    """Return the run that another living supervisor has in a run directory, None without one."""
    state = read_state(directory)
    if state is None or state.supervisor.pid == os.getpid() or not state.supervisor.alive:
        return None
    return state


def end_roles(state: RunState) -> None:
    """End the roles that a dead supervisor left behind: SIGTERM, then SIGKILL."""
    for process in state.roles:
        if process.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
    until = time.monotonic() + ENDED_WITHIN_S
    while any(p.alive for p in state.roles) and time.monotonic() < until:
        time.sleep(0.1)
    for process in state.roles:
        if process.alive:
            end_session(process.pid)


def take_down(directory: Path) -> RunState | None:
    """End a pipeline's run on this machine; return its state, None if there was no run.

    Raises ``Unsuccessful`` for processes that do not end.
    """
    state = read_state(directory)
    if state is None:
        return None
    if state.supervisor.alive:
        os.kill(state.supervisor.pid, signal.SIGTERM)
        os.kill(state.supervisor.pid, signal.SIGCONT)  # after Ctrl-Z it would not see SIGTERM
        _await_end(directory, state)
    else:
        end_roles(state)
    clear_state(directory)
    return state


def _await_end(directory: Path, state: RunState) -> None:
    everyone = len(state.left)
    until = time.monotonic() + DOWN_WITHIN_S
    with counting(f"stopping {state.pipeline}", everyone) as advance:
        while left := (read_state(directory) or state).left:
            if time.monotonic() > until:
                raise Unsuccessful(
                    f"{', '.join(p.name for p in left)} did not end within {DOWN_WITHIN_S:g} s; "
                    f"run `kill -9 {' '.join(str(p.pid) for p in left)}`"
                )
            advance(max(0, everyone - len(left)), f"waiting for {left[-1].name}")
            time.sleep(0.1)
