"""A fault, its kind, and the running pipeline that faults are injected into."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.rig import Asked, Rig
from benchmarks.tcp_proxy import Proxies


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault to inject; ``seconds`` is its duration, or the pause between its parts."""

    kind: str
    targets: tuple[str, ...]
    seconds: float
    quiet_s: float  # load without faults before this one


# A role is back within some 3 s, and on half-open connections within 5 (docs/results/chaos.md).
WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Scene:
    """The running pipeline and the broker that faults are injected into."""

    rig: Rig
    broker_home: Path
    beside: ThreadPoolExecutor  # one thread, for calls that would block the load
    proxies: Proxies | None = None  # between the roles and the broker
    garbage: list[Asked] = field(default_factory=list)  # garbage sent so far
    hits: Counter[str] = field(default_factory=Counter)  # faults of nodes so far, by kind
    returns_s: list[float] = field(default_factory=list)  # when lost nodes began to return


Perform = Callable[[Scene, Fault], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fault. ``of`` holds prefixes of role names; ``count`` of those roles are drawn.

    ``nodes``: the least and most nodes of the broker that it needs. ``median_s``, ``most_s``: the
    bounds of the times to recover, s. ``lacking`` returns why this machine cannot have it, "" if it
    can.
    """

    perform: Perform
    of: tuple[str, ...] = ()
    count: int = 1
    seconds: tuple[float, float] = (0.0, 0.0)
    nodes: tuple[int, int] = (1, 9)
    median_s: float = float("inf")
    most_s: float = WITHIN_S
    lacking: Callable[[], str] = str
