"""The cluster of a pipeline file: devices, types, tiers, gateways, and how they are run."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor

from control.problem.seats import seat_device, seat_worker
from headrace.config.sections import FileSection, GatewaySection, TypeSection
from profiles.measurements import EMULATED

NOBODY, SUPERVISOR = "nobody", "supervisor"  # values of ``cluster.scale``
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceType:
    """A type of device that can be rented; its workers run on ``device`` of this machine.

    ``share`` is the fraction of a core that a worker on the CPU has. ``price`` is $ per hour of
    one, ``most`` the number available (None: no limit), ``boot_s`` the time from renting one until
    its worker is ready.
    """

    name: str
    device: str
    share: float = 1.0
    price: float = 0.0
    most: int | None = None
    boot_s: float = 0.0
    memory: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierDevices:
    """The devices of a tier that run here: ``count`` processes with a worker for each of ``tasks``.

    ``device`` is what the workers run on. ``stretch`` is by task: an ``emulated`` device takes that
    multiple of this machine's seconds.
    """

    name: str
    device: str
    count: int
    tasks: tuple[str, ...]
    stretch: Mapping[str, float]
    emulated: bool = False

    def seats(self, device: str) -> dict[str, str]:
        """Return the workers of one device ("depot-0"), with the device that each reports."""
        return {seat_worker(device, task): seat_device(task, self.name) for task in self.tasks}


@dataclass(frozen=True, slots=True)
class Gateways:
    """The gateway processes that `up` starts; all of them listen on the same ports.

    ``grpc_port`` None: HTTP only.
    """

    http_port: int
    grpc_port: int | None
    processes: int = 1

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses on this machine, by protocol."""
        grpc = {} if self.grpc_port is None else {"grpc": f"127.0.0.1:{self.grpc_port}"}
        return {"http": f"http://127.0.0.1:{self.http_port}/v2", **grpc}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The number of workers on each device, and of ingress and egress processes.

    ``share`` is the fraction of a device's time that a worker reserves, above 0, at most 1.
    ``tasks_per_device`` workers share a device and a process; each is counted in ``devices``, and
    has its part of the device's time in ``share`` and of its memory in ``memory``.
    Workers on rented devices are counted under their type's name: ``types`` defines the types,
    ``budget`` is $ per hour for all of them, ``base`` the base type if the file fixes it.
    ``scale`` says who rents and releases devices while the pipeline runs; ``scale_command`` is the
    command by which `up` does, with a type and a number of devices as its arguments.
    """

    devices: tuple[tuple[str, int], ...]
    ingress: int = 1
    egress: int = 1
    share: float = 1.0
    memory: tuple[tuple[str, int], ...] = ()  # bytes that one worker of a device may use
    metrics_port: int | None = None  # of the first role, then ascending; 0: any free port
    types: tuple[DeviceType, ...] = ()
    budget: float | None = None
    base: str = ""
    tasks_per_device: int = 1
    profilers: int = 0  # processes; 0 without samples for them: a workload's or labelled inputs
    gateway: Gateways | None = None
    dashboard_port: int | None = None  # of this machine; 0: any free one; None: no dashboard
    scale: str = NOBODY  # who rents devices of types while the pipeline runs
    scale_command: tuple[str, ...] = ()
    tiers: tuple[TierDevices, ...] = ()  # where sessions are served; then ``devices`` are seats

    @property
    def rents(self) -> bool:
        """Whether devices are rented and released while the pipeline runs."""
        return self.scale != NOBODY and self.budget is not None

    @property
    def unplanned(self) -> bool:
        """Whether the cluster has device types but no number of devices of them yet."""
        return bool(self.types) and not any(self.type_of(name) for name, _ in self.devices)

    def type_of(self, name: str) -> DeviceType | None:
        """Return the type of that name; None for a device that is no type."""
        return next((each for each in self.types if each.name == name), None)

    def tier(self, name: str) -> TierDevices | None:
        """Return the tier of that name; None for any other device."""
        return next((each for each in self.tiers if each.name == name), None)

    def host_device(self, name: str) -> str:
        """Return the device of this machine for a device, type, tier or seat: "cpu", "cuda:0"."""
        tier = self.tier(name.partition("@")[2] or name)
        if tier is not None:
            return tier.device
        found = self.type_of(name)
        return found.device if found else name

    def type_share(self, name: str) -> float:
        """Return the share of a core that the type of that name has; 1 for any other device."""
        found = self.type_of(name)
        return found.share if found else 1.0

    def gpu_percentage(self, name: str) -> int | None:
        """Return the whole percentage of its GPU that a worker of that device, type or seat may
        use, at least 1; None: no GPU, or the pipeline may use all of it.

        The workers of a GPU divide the pipeline's share equally, as they are profiled together.
        """
        host, share = self.host_device(name), self.share * self.tasks_per_device
        if self.tiers or not host.startswith("cuda") or share >= 1.0 - _ROUNDING:
            return None
        there = sum(count for other, count in self.devices if self.host_device(other) == host)
        return max(1, floor(100.0 * share / max(1, there) + _ROUNDING))

    def emulated(self, name: str) -> bool:
        """Return whether workers on a device, type or seat of that name run no models."""
        return self.host_device(name) == EMULATED

    @property
    def reserved(self) -> dict[str, float]:
        """The number of workers by device of this machine, those of a type times its share; seats
        of tiers by their own name."""
        found: dict[str, float] = {}
        for name, count in self.devices:
            of_type = self.type_of(name)
            device, share = (of_type.device, of_type.share) if of_type else (name, 1.0)
            found[device] = found.get(device, 0.0) + count * share
        return found

    @property
    def workers(self) -> tuple[str, ...]:
        """The device of each worker."""
        return tuple(device for device, count in self.devices for _ in range(count))


def cluster_of(file: FileSection) -> Cluster:
    """Return the cluster of a pipeline file that has been checked."""
    section = file.cluster
    types = tuple(_device_type(*each) for each in (section.types or {}).items())
    started = [(name, count) for name, count in (section.start or {}).items() if count]
    memory = {each.name: each.memory for each in types if each.memory is not None}
    parts = section.tasks_per_device
    devices = ((name, count * parts) for name, count in (section.devices or {}).items())
    tiers = () if section.devices or types else tuple(_tiers(file))
    seats = (
        (seat_device(task, each.name), each.count)
        for each in tiers
        for task in each.tasks
        if each.count
    )
    return Cluster(
        (*devices, *started, *seats),
        section.ingress,
        section.egress,
        section.share / parts,
        (*((name, size // parts) for name, size in section.memory.items()), *memory.items()),
        metrics_port=section.metrics_port,
        types=types,
        budget=section.budget,
        base=section.base or "",
        tasks_per_device=parts,
        profilers=section.profilers if file.has_samples else 0,
        gateway=_gateways(section.gateway) if section.gateway else None,
        dashboard_port=section.dashboard.port if section.dashboard else None,
        scale=section.scale,
        scale_command=tuple(shlex.split(section.scale_command or "")),
        tiers=tiers,
    )


def _gateways(section: GatewaySection) -> Gateways:
    return Gateways(section.http_port, section.grpc_port, section.processes)


def _tiers(file: FileSection) -> Iterator[TierDevices]:
    """Yield the tiers with their devices here: the count of each, and the tasks that may run on
    it."""
    for name, tier in (file.cluster.tiers or {}).items():
        emulated = tier.device == EMULATED
        tasks = {
            task: section
            for task, section in file.tasks.items()
            if section.tiers is None or name in section.tiers
        }
        yield TierDevices(
            name=name,
            device="cpu" if emulated else tier.device,
            count=tier.devices_here,
            tasks=tuple(task for task in file.topological() if task in tasks),
            stretch={
                task: 1.0 / (tier.cpu_speed if section.cpu else tier.speed) if emulated else 1.0
                for task, section in tasks.items()
            },
            emulated=emulated,
        )


def _device_type(name: str, section: TypeSection) -> DeviceType:
    return DeviceType(
        name=name,
        device=section.device,
        share=section.share,
        price=section.price,
        most=section.most,
        boot_s=section.boot or 0.0,
        memory=section.memory,
    )
