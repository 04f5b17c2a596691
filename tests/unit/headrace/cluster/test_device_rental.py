import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from headrace.cluster.device_rental import AGAIN_S, CommandedDevices, DeviceRental, LocalDevices
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.topology import Role, file_roles
from schemas.codec.single_object import encode
from schemas.records import Plan, Settings
from streams.kafka.kafka_errors import BrokerError
from tests.typed_files import RANK, a_typed_file

TEXT = RANK.replace("budget: 1.2", "budget: 1.2\n  scale: supervisor\n  start: {slow: 1}").replace(
    "price: 0.5}", "price: 0.5, boot: 3s}"
)


@dataclass
class FakeFleet:
    """A fleet that starts nothing and records the start times of roles and the retired roles."""

    started: list[tuple[str, float]] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)

    def start_at(self, role: Role, due_s: float) -> None:
        self.roles.append(role)
        self.started.append((role.name, due_s))

    def retire(self, name: str) -> None:
        self.retired.append(name)


@dataclass
class Plans:
    """A plans topic whose records are read once."""

    values: list[bytes] = field(default_factory=list)
    refused: bool = False  # the user may not read it

    def add(self, epoch: int, mix: dict[str, int], pipeline: str = "rank") -> None:
        settings = Settings(policy="kairos", slo_s=0.1)
        plan = Plan(
            pipeline=pipeline, epoch=epoch, issued_s=0.0, reason="", settings=settings, mix=mix
        )
        self.values.append(encode(plan))

    def take(self, timeout_s: float) -> list[bytes]:
        if self.refused:
            raise BrokerError("no right to Read")
        values, self.values = self.values, []
        return values

    def close(self) -> None:
        self.values = []


@pytest.fixture
def plans() -> Plans:
    return Plans()


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


@pytest.fixture
def rental(tmp_path: Path, plans: Plans, fleet: FakeFleet) -> DeviceRental:
    cluster = read_pipeline_file(a_typed_file(tmp_path, TEXT)).cluster
    local = LocalDevices(cluster, fleet, clock=lambda: 10.0)
    return DeviceRental("rank", local.counts, local, plans, lambda text: None)


def test_devices_stay_while_the_plans_cannot_be_read_and_it_is_said_once(
    plans: Plans, fleet: FakeFleet, tmp_path: Path
) -> None:
    said = list[str]()
    cluster = read_pipeline_file(a_typed_file(tmp_path, TEXT)).cluster
    local = LocalDevices(cluster, fleet, clock=lambda: 10.0)
    rental = DeviceRental("rank", local.counts, local, plans, said.append)
    plans.refused = True
    for _ in range(3):
        rental.tend()
    assert said == ["the devices stay as they are: no right to Read"]
    plans.refused = False
    plans.add(1, {"slow": 2})
    rental.tend()
    assert said[1:] == ["slow: scaling from 1 to 2"]


def test_a_plan_starts_devices_after_their_boot_time_and_ends_the_newest(
    plans: Plans, fleet: FakeFleet, rental: DeviceRental
) -> None:
    rental.tend()
    assert (fleet.started, fleet.retired) == ([], [])
    plans.add(1, {"gpu": 1, "slow": 3})
    rental.tend()
    assert fleet.started == [("gpu-0", 13.0), ("slow-1", 10.0), ("slow-2", 10.0)]
    plans.add(2, {"gpu": 1, "slow": 1})
    rental.tend()
    assert fleet.retired == ["slow-2", "slow-1"]
    plans.add(3, {"gpu": 1, "slow": 2})
    rental.tend()
    assert fleet.started[3:] == [("slow-3", 10.0)]  # a new name


def test_a_device_rented_later_has_any_free_port_for_metrics(tmp_path: Path) -> None:
    """It used to take the first port, the control app's, and its refusal ended `up`."""
    cluster = read_pipeline_file(a_typed_file(tmp_path, TEXT)).cluster

    def rented(port: int | None) -> list[tuple[str, ...]]:
        fleet = FakeFleet()
        LocalDevices(replace(cluster, metrics_port=port), fleet).scale("gpu", 1)
        return [role.arguments for role in fleet.roles]

    worker = ("--name", "gpu-0", "--device", "gpu")
    assert rented(9400) == [(*worker, "--metrics-port", "0")]
    assert rented(None) == [worker]


def test_older_foreign_or_mixless_plans_change_nothing(
    plans: Plans, fleet: FakeFleet, rental: DeviceRental
) -> None:
    plans.add(5, {"gpu": 0, "slow": 1})
    plans.add(4, {"gpu": 2, "slow": 1})
    plans.add(6, {"gpu": 2, "slow": 1}, pipeline="other")
    plans.add(7, {})
    plans.values.append(b"no record")
    rental.tend()
    assert (fleet.started, fleet.retired) == ([], [])


def until(done: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if done():
            return
    raise AssertionError("the command did not end")


def test_a_command_is_given_the_type_and_the_number(tmp_path: Path) -> None:
    write = "import sys; open('asked', 'a').write(' '.join(sys.argv[1:]) + ';')"
    devices = CommandedDevices((sys.executable, "-c", write), tmp_path, lambda text: None)
    until(lambda: devices.scale("gpu", 2))
    until(lambda: devices.scale("gpu", 2))
    until(lambda: devices.scale("slow", 0))
    assert (tmp_path / "asked").read_text() == "gpu 2;slow 0;"


def test_failed_command_is_reported_and_retried_once(tmp_path: Path) -> None:
    said: list[str] = []
    now = [0.0]
    command = (sys.executable, "-c", "raise SystemExit(3)")
    devices = CommandedDevices(command, tmp_path, said.append, clock=lambda: now[0])
    until(lambda: devices.scale("gpu", 1) or bool(said))
    assert said[0].endswith("gpu 1: exited with code 3")
    assert not devices.scale("gpu", 1)
    assert len(said) == 1
    now[0] += AGAIN_S
    until(lambda: devices.scale("gpu", 1) or len(said) == 2)


def test_a_command_that_runs_at_the_end_is_ended_with_its_children(tmp_path: Path) -> None:
    """It would scale after the command of the next `up`."""
    said: list[str] = []
    rent = "sleep 1000 & echo $! > child; wait"
    devices = CommandedDevices(("sh", "-c", rent), tmp_path, said.append)
    child = tmp_path / "child"
    until(lambda: devices.scale("gpu", 1) or (child.exists() and child.read_text() != ""))
    devices.close(0.0)
    pid = int(child.read_text())
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie")
    assert said[0].endswith("gpu 1: did not end within 0 s while the pipeline stops; killed")
    devices.close(0.0)


def test_missing_command_is_reported(tmp_path: Path) -> None:
    said: list[str] = []
    devices = CommandedDevices(("no-such-program",), tmp_path, said.append)
    assert not devices.scale("gpu", 1)
    assert "no-such-program gpu 1: " in said[0]


def test_with_a_command_up_starts_no_workers_of_types(tmp_path: Path) -> None:
    text = TEXT.replace("scale: supervisor", "scale: supervisor\n  scale_command: ./rent --now")
    file = read_pipeline_file(a_typed_file(tmp_path, text))
    assert file.cluster.scale_command == ("./rent", "--now")
    assert not [role for role in file_roles(file) if role.kind == "worker"]
