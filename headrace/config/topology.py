"""The roles of a pipeline: which processes its cluster section asks for, and who reads what."""

from dataclasses import dataclass, replace
from itertools import repeat

from headrace.config.pipeline_file import Cluster


@dataclass(frozen=True, slots=True)
class Role:
    """A process to run: its name, the command ``kind`` and what follows the pipeline file."""

    name: str
    kind: str
    arguments: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  # as they call themselves in reports
    metrics_port: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """This process is number ``index`` (from 0) of ``of`` that divide the partitions."""

    index: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.of:
            raise ValueError(f"share {self.index}/{self.of}: write INDEX/OF with INDEX below OF")

    def mine(self, count: int) -> tuple[int, ...]:
        """Which of ``count`` partitions are this process's."""
        return tuple(p for p in range(count) if p % self.of == self.index)


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
