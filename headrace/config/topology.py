"""The processes of a pipeline's cluster section, and their shares of the partitions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from headrace.config.cluster import SUPERVISOR, Cluster, Gateways, TierDevices
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import PipelineError


@dataclass(frozen=True, slots=True)
class Role:
    """A process to run: name, command (``kind``) and the arguments after the pipeline file."""

    name: str
    kind: str
    arguments: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  # their names in reports
    metrics_port: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A process's share of the partitions: number ``index`` (from 0) of ``of`` processes."""

    index: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.of:
            raise ValueError(f"share {self.index}/{self.of}: write INDEX/OF with INDEX below OF")

    def mine(self, count: int) -> tuple[int, ...]:
        """Return this process's partitions out of ``count``."""
        return tuple(p for p in range(count) if p % self.of == self.index)

    def part(self, count: int) -> float:
        """Return the part, 0 to 1, of what arrives evenly on ``count`` partitions."""
        return len(self.mine(count)) / count

    def check(self, file: PipelineFile, key: str, processes: int) -> None:
        """Raise ``PipelineError`` unless it is one of the file's number of processes, ``key``.

        Shares of different numbers overlap: two processes would do the same work.
        """
        if self.of != processes:
            raise PipelineError(
                f"{file.path}: --share {self.index}/{self.of} is for {self.of} processes, and "
                f"{key} is {processes}: shares of both numbers overlap; give --share "
                f"INDEX/{processes}, or change {key} and restart every role"
            )


def file_roles(file: PipelineFile) -> tuple[Role, ...]:
    """Return every role of a pipeline file, in start order."""
    pipeline = file.pipeline
    waiting = [
        dispatcher
        for task in pipeline.dispatched
        for dispatcher in dispatchers(task.name, pipeline.dispatchers)
    ]
    return roles(file.cluster, scored=pipeline.labels is not None, dispatchers=waiting)


def roles(
    cluster: Cluster, *, scored: bool = False, dispatchers: Sequence[Role] = ()
) -> tuple[Role, ...]:
    """Return every role of a cluster section, in start order; ``scored``: with a scorer.

    With ``metrics_port`` the roles but the dashboard have ascending ports from that one.
    """
    every = (
        Role("control", "control"),
        *_shared("egress", cluster.egress),
        *(
            role
            for device, count in cluster.devices
            if not (cluster.tiers or (cluster.scale_command and cluster.type_of(device)))
            for role in cluster_workers(cluster, device, count)
        ),
        *((Role("scorer", "scorer", (), ("scorer",)),) if scored else ()),
        *(role for tier in cluster.tiers for role in tier_devices(tier)),
        *(profilers(cluster.profilers) if cluster.tiers else ()),
        *dispatchers,
        *_shared("ingress", cluster.ingress),
        *_gateways(cluster.gateway),
    )
    return (*_with_ports(every, cluster.metrics_port), *_dashboards(cluster.dashboard_port))


def _with_ports(every: tuple[Role, ...], first: int | None) -> tuple[Role, ...]:
    if first is None:
        return every
    ports = range(first, first + len(every)) if first else repeat(0)  # 0: each any free one
    return tuple(with_port(role, port) for role, port in zip(every, ports, strict=False))


def _dashboards(port: int | None) -> list[Role]:
    # The dashboard serves no metrics, and reads none: its figures come from the topics.
    return [] if port is None else [Role("dashboard", "dashboard", ("--port", str(port)))]


def dispatchers(task: str, of: int) -> list[Role]:
    """Return the processes that share the items of an inner task with a dispatcher."""
    return [
        Role(name, "dispatcher", ("--task", task, "--share", f"{i}/{of}"), (name,))
        for i in range(of)
        for name in [dispatcher_name(task, i)]
    ]


def dispatcher_name(task: str, number: int) -> str:
    """Return the name of dispatcher ``number`` of a task in reports."""
    return f"dispatcher-{task}-{number}"


def profilers(count: int, prefix: str = "profiler") -> list[Role]:
    """Return the processes of profilers, which run configurations for searches."""
    names = [f"{prefix}-{number}" for number in range(count)]
    return [Role(name, "profiler", ("--name", name, "--device", "cpu")) for name in names]


def _gateways(gateway: Gateways | None) -> list[Role]:
    if gateway is None:
        return []
    grpc = "none" if gateway.grpc_port is None else str(gateway.grpc_port)
    ports = ("--http-port", str(gateway.http_port), "--grpc-port", grpc, "--share-ports")
    return [Role(f"gateway-{i}", "gateway", ports) for i in range(gateway.processes)]


def with_port(role: Role, port: int) -> Role:
    """Return the role with a port for metrics; 0: any free one."""
    return replace(
        role, metrics_port=port, arguments=(*role.arguments, "--metrics-port", str(port))
    )


def _shared(kind: str, of: int) -> list[Role]:
    return [
        Role(f"{kind}-{i}", kind, ("--share", f"{i}/{of}"), (f"{kind}-{i}",)) for i in range(of)
    ]


def cluster_workers(cluster: Cluster, device: str, count: int) -> list[Role]:
    """Return the processes of a cluster's ``count`` workers on one device or device type."""
    host, parts = cluster.host_device(device), cluster.tasks_per_device
    if cluster.scale == SUPERVISOR and cluster.type_of(device):
        return [rented_worker(device, number) for number in range(count)]
    if parts == 1 or host == "emulated":
        return workers(device, count, host)
    whole = workers(device, count // parts, host)
    if host.startswith("cuda"):
        return [part for role in whole for part in _shared_gpu(role, parts)]
    return [_shared_device(role, parts) for role in whole]


def rented_worker(type_: str, number: int) -> Role:
    """Return the process of one rented device, which ends when the device is released."""
    name = f"{type_}-{number}"
    return Role(name, "worker", ("--name", name, "--device", type_), (name,))


def tier_devices(tier: TierDevices) -> list[Role]:
    """Return a process for each device of a tier, with a worker for each of its tasks."""
    names = [f"{tier.name}-{number}" for number in range(tier.count)]
    return [
        Role(name, "worker", ("--name", name, "--device", tier.name), tuple(tier.seats(name)))
        for name in names
        if tier.tasks
    ]


def _shared_device(role: Role, parts: int) -> Role:
    """Return the process of a device that ``parts`` workers share."""
    nodes = tuple(f"{role.name}-{part}" for part in range(parts))
    return replace(role, arguments=(*role.arguments, "--count", str(parts)), nodes=nodes)


def _shared_gpu(role: Role, parts: int) -> list[Role]:
    """Return the processes of a GPU that ``parts`` workers share.

    A GPU divides its time equally among processes. Kernels of one process run in their order, so a
    light task's batch would wait for the whole batch of a heavy one.
    """
    device = role.arguments[role.arguments.index("--device") + 1]
    names = [f"{role.name}-{part}" for part in range(parts)]
    return [Role(each, "worker", ("--name", each, "--device", device), (each,)) for each in names]


def workers(device: str, count: int, host: str = "") -> list[Role]:
    """Return a process for each worker; emulated workers share one process, since they only wait.

    ``host`` is the device that a type's workers run on; "": the device itself.
    """
    name = device.replace(":", "")
    named = [f"{name}-{i}" for i in range(count)]
    if (host or device) == "emulated":
        # A single worker keeps the plain name (headrace/roles/workers/worker_models.py).
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
