from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.cluster.device_rental import ArrivalPeak, DeviceRental
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.topology import Role
from schemas.codec.single_object import encode
from schemas.enumerations import NodeState
from schemas.records import Report
from tests.typed_files import RANK, a_typed_file

# By the fluid bound a slow device carries 11/s, a fast one 48/s.
TEXT = (
    RANK.replace("slo: 100ms", "slo: 2s")
    .replace("budget: 1.2", "budget: 1.2\n  scale: supervisor\n  start: {slow: 1}")
    .replace("price: 0.5}", "price: 0.5, boot: 3s}")
)


@dataclass
class FakeFleet:
    """Starts nothing; remembers when which role was to start, and which was ended."""

    started: list[tuple[str, float]] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)

    def start_at(self, role: Role, due_s: float) -> None:
        self.started.append((role.name, due_s))

    def retire(self, name: str) -> None:
        self.retired.append(name)


@dataclass
class World:
    """A clock and the reports of an ingress at a rate and of workers that serve."""

    now: float = 0.0
    arrived: float = 0.0
    qps: float = 0.0
    serving: tuple[str, ...] = ("slow-0",)

    def take(self, timeout_s: float) -> list[bytes]:
        return [
            encode(_report("ingress-0", "ingress", {"arrived": self.arrived})),
            *(encode(_report(name, "worker", {})) for name in self.serving),
        ]

    def close(self) -> None:
        self.serving = ()

    def pass_by(self, rental: DeviceRental, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.arrived += self.qps
            rental.tend()


def _report(node: str, role: str, counts: dict[str, float]) -> Report:
    return Report(
        node=node, role=role, pipeline="rank", epoch=1, incarnation=0.0, sent_s=0.0,
        state=NodeState.READY, counts=counts,
    )  # fmt: skip


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


@pytest.fixture
def rental(tmp_path: Path, world: World, fleet: FakeFleet) -> DeviceRental:
    file = read_pipeline_file(a_typed_file(tmp_path, TEXT))
    return DeviceRental(file, fleet, world, lambda text: None, clock=lambda: world.now)


def test_the_mix_of_the_start_stays_without_demand_for_a_while(
    world: World, fleet: FakeFleet, rental: DeviceRental
) -> None:
    world.pass_by(rental, 20)
    assert (rental.present, fleet.started, fleet.retired) == ((0, 1), [], [])


def test_demand_rents_after_the_boot_time_and_releases_half_a_minute_after_it_fell(
    world: World, fleet: FakeFleet, rental: DeviceRental
) -> None:
    world.qps = 40.0
    world.pass_by(rental, 8)
    assert rental.present == (1, 1)
    assert [name for name, _ in fleet.started] == ["gpu-0"]
    assert 3.0 < fleet.started[0][1] <= 8.0 + 3.0
    assert fleet.retired == []  # until the new device serves
    world.serving = ("slow-0", "gpu-0")
    world.pass_by(rental, 5)
    assert fleet.retired == ["slow-0"]  # the fast device alone carries it
    world.qps = 2.0
    world.pass_by(rental, 25)
    assert rental.present == (1, 0)
    for _ in range(15):
        world.serving = ("gpu-0", *(name for name, _ in fleet.started))
        world.pass_by(rental, 1)
    assert rental.present == (0, 1)
    assert "gpu-0" in fleet.retired


def test_the_metric_has_the_wanted_mix(world: World, rental: DeviceRental) -> None:
    world.qps = 1000.0
    world.pass_by(rental, 8)
    assert list(rental.samples()) == [
        ("workers_wanted", ("gpu",), 2.0),
        ("workers_wanted", ("slow",), 1.0),
    ]


def test_the_peak_counts_an_ingress_that_restarts_from_nothing() -> None:
    peak = ArrivalPeak()
    for second in range(10):
        incarnation, counted = (0.0, second * 5.0) if second < 5 else (1.0, (second - 5) * 5.0)
        peak.see(
            Report(
                node="ingress-0", role="ingress", pipeline="p", epoch=1, incarnation=incarnation,
                sent_s=0.0, state=NodeState.READY, counts={"arrived": counted},
            )
        )  # fmt: skip
        rate = peak.qps(float(second))
    assert rate == pytest.approx(5.0, abs=1.3)
