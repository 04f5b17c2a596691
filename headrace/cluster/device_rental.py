"""Rent and release devices of types while ``headrace up`` runs a pipeline (``cluster.scale``).

The control app decides (``control/controller/rental.py``): its plans name the number of devices of
each type. This module carries the plans out. A rented device is a worker of its type on this
machine that starts after the boot time of its type; a released device hands over its work and ends.
With ``cluster.scale_command`` the user's command rents and releases instead.
"""

import subprocess
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Protocol

from headrace.config.cluster import Cluster
from headrace.config.topology import Role, rented_worker, with_port
from headrace.processes import STOP_PATIENCE_S, end_session
from schemas.codec.single_object import CodecError, decode
from schemas.records import Plan
from streams.kafka.kafka_errors import BrokerError

AGAIN_S = 5.0  # after a command that failed
COMMAND_WITHIN_S = 120.0


class PlansTopic(Protocol):
    """A follower of the plans topic."""

    def take(self, timeout_s: float) -> list[bytes]:
        """Return the new records."""

    def close(self) -> None:
        """End reading."""


class RentedWorkers(Protocol):
    """Starts and ends the workers of rented devices."""

    def start_at(self, role: Role, due_s: float) -> None:
        """Start a role at a time of the fleet's clock."""

    def retire(self, name: str) -> None:
        """End a role for good."""


class Actuator(Protocol):
    """Rents and releases devices until ``count`` of a type run or boot. Called a few times a second
    with the same count; returns whether it is done."""

    def scale(self, type_: str, count: int) -> bool: ...

    def close(self, patience_s: float) -> None:
        """End what is under way, within ``patience_s``; rented devices stay."""


class LocalDevices:
    """Rented devices that are workers on this machine."""

    def __init__(
        self, cluster: Cluster, fleet: RentedWorkers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._boot_s = {each.name: each.boot_s for each in cluster.types}
        self._fleet, self._clock = fleet, clock
        self._measured = cluster.metrics_port is not None
        started = dict(cluster.devices)
        self._names: dict[str, list[str]] = {
            name: [rented_worker(name, n).name for n in range(started.get(name, 0))]
            for name in self._boot_s
        }
        self._numbers = {name: count(len(here)) for name, here in self._names.items()}

    @property
    def counts(self) -> dict[str, int]:
        """The devices that run or boot, by type."""
        return {name: len(here) for name, here in self._names.items()}

    def scale(self, type_: str, count: int) -> bool:
        names = self._names[type_]
        while len(names) < count:
            role = rented_worker(type_, next(self._numbers[type_]))
            if self._measured:
                # Else it would take `up --metrics-port` from its environment, the control app's.
                role = with_port(role, 0)
            names.append(role.name)
            self._fleet.start_at(role, self._clock() + self._boot_s[type_])
        while len(names) > count:
            self._fleet.retire(names.pop())  # the newest, which may still be booting
        return True

    def close(self, patience_s: float) -> None:
        """Do nothing: the supervisor ends the workers."""


class CommandedDevices:
    """Rented devices that the user's command rents and releases: ``COMMAND TYPE COUNT``.

    One command runs at a time. A failed command is run again after ``AGAIN_S``.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        folder: Path,
        said: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command, self._folder, self._said, self._clock = command, folder, said, clock
        self._running: subprocess.Popen[bytes] | None = None
        self._for: tuple[str, int] = ("", 0)
        self._until_s = self._again_s = float("-inf")
        self._done: dict[str, int] = {}

    def scale(self, type_: str, count: int) -> bool:
        self._ended()
        if self._running is not None or self._clock() < self._again_s:
            return False
        if self._done.get(type_) == count:
            return True
        self._for, self._until_s = (type_, count), self._clock() + COMMAND_WITHIN_S
        try:
            self._running = subprocess.Popen(
                [*self._command, type_, str(count)], cwd=self._folder, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._failed(str(error))
        return False

    def close(self, patience_s: float) -> None:
        """Wait for a running command, then kill it with its children.

        One that went on could scale after that of the next `up`.
        """
        if self._running is None:
            return
        try:
            self._running.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._kill(f"did not end within {patience_s:g} s while the pipeline stops; killed")
        self._running = None

    def _kill(self, why: str) -> None:
        assert self._running is not None
        end_session(self._running.pid)
        self._running.wait()
        self._failed(why)

    def _ended(self) -> None:
        running = self._running
        if running is None:
            return
        code = running.poll()
        if code is None and self._clock() > self._until_s:
            self._kill(f"took longer than {COMMAND_WITHIN_S:g} s")
        elif code is not None:
            if code:
                self._failed(f"exited with code {code}")
            else:
                self._done[self._for[0]] = self._for[1]
            self._running = None

    def _failed(self, why: str) -> None:
        self._running, self._again_s = None, self._clock() + AGAIN_S
        self._said(f"{' '.join(self._command)} {self._for[0]} {self._for[1]}: {why}")


class DeviceRental:
    """Follows the plans of a pipeline. Call ``tend`` a few times a second."""

    def __init__(
        self,
        pipeline: str,
        start: Mapping[str, int],
        actuator: Actuator,
        plans: PlansTopic,
        said: Callable[[str], None],
    ) -> None:
        self._pipeline, self._actuator, self._plans, self._said = pipeline, actuator, plans, said
        self._epoch = -1
        self.wanted: dict[str, int] = dict(start)
        self._late = set(start)  # types whose number is not reached
        self._blind = False  # the plans cannot be read

    def close(self) -> None:
        """End reading plans and a command that runs; rented devices stay."""
        self._plans.close()
        self._actuator.close(STOP_PATIENCE_S)

    def kill(self) -> None:
        """Kill a command that runs."""
        self._actuator.close(0.0)

    def tend(self) -> None:
        """Read plans; rent and release."""
        for value in self._taken():
            self._see(value)
        late = sorted(self._late)
        self._late = {name for name in late if not self._actuator.scale(name, self.wanted[name])}

    def _taken(self) -> list[bytes]:
        """Return the new records; [] while they cannot be read, which is said once."""
        try:
            found = self._plans.take(0.0)
        except BrokerError as error:
            if not self._blind:
                self._said(f"the devices stay as they are: {error}")
            self._blind = True
            return []
        self._blind = self._blind and not found
        return found

    def _see(self, value: bytes) -> None:
        try:
            plan = decode(value)
        except CodecError:  # a record of another release; its next plan has the numbers
            return
        if not isinstance(plan, Plan) or plan.pipeline != self._pipeline:
            return
        if plan.epoch <= self._epoch:
            return
        self._epoch = plan.epoch
        for name, devices in plan.mix.items():
            before = self.wanted.get(name)
            if before is not None and before != devices:
                self._said(f"{name}: scaling from {before} to {devices}")
                self.wanted[name] = devices
                self._late.add(name)
