"""The kinds of faults, their random order, and the bounds of the times to recover.

Faults are drawn from a seeded generator in advance, so that a seed gives the same faults for any
behaviour of the pipeline. Every round has each kind once, in random order.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import chaos_faults as process
from benchmarks import machine_faults as machine
from benchmarks import network_faults as network
from benchmarks.fault_scene import Fault, Kind, Scene
from benchmarks.hosts import no_hosts


def chosen(nodes: int, longest_s: float = 10.0, names: Sequence[str] = ()) -> Mapping[str, Kind]:
    """Return the kinds for a broker of ``nodes`` nodes that last up to ``longest_s``, or those
    named; without those that this machine cannot have (``lacking``). Raises ``ValueError`` for an
    unknown name."""
    unknown = sorted(set(names) - KINDS.keys())
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no kind of fault; known: {', '.join(KINDS)}")
    return {
        name: kind
        for name, kind in KINDS.items()
        if (not names or name in names)
        and nodes in range(kind.nodes[0], kind.nodes[1] + 1)
        and kind.seconds[0] <= longest_s
        and not kind.lacking()
    }


def lacking() -> Mapping[str, str]:
    """Return the kinds that this machine cannot have, each with its reason."""
    return {name: reason for name, kind in KINDS.items() if (reason := kind.lacking())}


def drawn(
    rng: np.random.Generator, roles: Sequence[str], kinds: Mapping[str, Kind] | None = None
) -> Iterator[Fault]:
    """Yield faults endlessly, by default of every kind for one broker; of kinds that hit roles,
    those that the pipeline has roles for. Raises ``ValueError`` if that leaves none."""
    kinds = chosen(1) if kinds is None else kinds
    among = {name: [r for r in roles if kind.of and r.startswith(kind.of)]
             for name, kind in kinds.items()}  # fmt: skip
    names = sorted(name for name, kind in kinds.items() if among[name] or not kind.of)
    if not names:
        raise ValueError(f"no role of the pipeline may suffer {', '.join(kinds)}; add other kinds")
    while True:
        for name in map(str, rng.permutation(names)):
            kind = kinds[name]
            targets = rng.permutation(among[name])[: kind.count]
            yield Fault(
                kind=name,
                targets=tuple(map(str, targets)),
                seconds=round(float(rng.uniform(*kind.seconds)), 3),
                quiet_s=round(float(rng.uniform(0.5, 2.0)), 3),
            )


def perform(scene: Scene, fault: Fault) -> float:
    """Inject a fault; return when it began (broker outage: ended). Raises ``Stuck``."""
    return KINDS[fault.kind].perform(scene, fault)


WORKERS, EVERYBODY = ("cpu-",), ("control", "egress", "cpu-", "dispatcher", "ingress")
QUEUES = ("ingress", "dispatcher")  # roles that hold waiting queries or items
ONE, THREE = (1, 1), (3, 9)
HOST, LONG_HOST = "host cut off", "host long cut off"  # every role has its own host then
DISK_FULL = "disk full"  # the broker's data lie on a small disk then
# A partition is over 2 s after it has healed.
HEALED: Mapping[str, Any] = {"nodes": ONE, "most_s": 2.0}
KINDS: Mapping[str, Kind] = {
    "kill worker": Kind(perform=process.killed, of=WORKERS, median_s=1.0, most_s=2.0),
    "kill control app": Kind(perform=process.killed, of=process.CONTROLS),
    "kill ingress": Kind(perform=process.killed, of=("ingress",)),
    "kill dispatcher": Kind(perform=process.killed, of=("dispatcher",)),
    "kill egress": Kind(perform=process.killed, of=("egress",)),
    "kill three": Kind(
        perform=process.killed, of=EVERYBODY, count=3, seconds=(0.0, 1.5), most_s=15.0
    ),
    "overlapping": Kind(
        perform=process.overlapping, of=("egress", "cpu-"), count=3, seconds=(0.3, 2.0)
    ),
    "freeze worker": Kind(perform=process.frozen, of=WORKERS, seconds=(0.3, 5.0)),
    "freeze control app": Kind(perform=process.frozen, of=process.CONTROLS, seconds=(0.5, 10.0)),
    "freeze ingress": Kind(perform=process.frozen, of=QUEUES, seconds=(0.3, 3.0)),
    "freeze egress": Kind(perform=process.frozen, of=("egress",), seconds=(0.3, 3.0)),
    "stand still": Kind(
        perform=process.stood_still, of=("egress", "ingress"), seconds=(6.0, 9.0), most_s=20.0
    ),
    "second instance": Kind(perform=process.second_instance, of=("egress", "ingress", "cpu-")),
    "broker away": Kind(perform=process.broker_away, seconds=(1.0, 6.0), nodes=ONE, most_s=5.0),
    "kill broker": Kind(perform=process.broker_killed, seconds=(0.5, 4.0), nodes=ONE, most_s=5.0),
    "freeze broker": Kind(perform=process.broker_frozen, seconds=(1.0, 8.0), nodes=ONE, most_s=5.0),
    "long outage": Kind(perform=process.broker_away, seconds=(20.0, 90.0), nodes=ONE, most_s=5.0),
    "kill node": Kind(perform=process.node_killed, seconds=(1.0, 8.0), nodes=THREE, most_s=5.0),
    "freeze node": Kind(perform=process.node_frozen, seconds=(2.0, 12.0), nodes=THREE, most_s=5.0),
    "restart node": Kind(
        perform=process.node_restarted, seconds=(0.0, 1.0), nodes=THREE, most_s=5.0
    ),
    "cut worker": Kind(perform=network.cut, of=WORKERS, seconds=(1.0, 5.0), **HEALED),
    "cut control app": Kind(perform=network.cut, of=process.CONTROLS, seconds=(1.0, 5.0), **HEALED),
    "cut egress": Kind(perform=network.cut, of=("egress",), seconds=(1.0, 4.0), **HEALED),
    "cut ingress": Kind(perform=network.cut, of=QUEUES, seconds=(1.0, 4.0), **HEALED),
    "long cut": Kind(
        perform=network.cut, of=("control", "cpu-", "egress"), seconds=(30.0, 90.0), **HEALED
    ),
    HOST: Kind(
        perform=network.host_cut_off, of=EVERYBODY, seconds=(1.0, 5.0), lacking=no_hosts, **HEALED
    ),
    LONG_HOST: Kind(
        perform=network.host_cut_off,
        of=("control", "cpu-", "egress"),
        seconds=(30.0, 90.0),
        lacking=no_hosts,
        **HEALED,
    ),
    "deaf": Kind(perform=network.deafened, of=EVERYBODY, seconds=(1.0, 4.0), **HEALED),
    "mute": Kind(perform=network.muted, of=EVERYBODY, seconds=(1.0, 4.0), **HEALED),
    "half open": Kind(perform=network.half_opened, of=EVERYBODY, nodes=ONE),
    "slow network": Kind(perform=network.slowed, of=EVERYBODY, seconds=(2.0, 5.0), nodes=ONE),
    "clock step": Kind(
        perform=machine.clock_stepped,
        of=EVERYBODY,
        seconds=(2.0, 8.0),
        most_s=2.0,
        lacking=machine.no_faketime,
    ),
    DISK_FULL: Kind(
        perform=machine.disk_full,
        seconds=(0.5, 4.0),
        nodes=ONE,
        most_s=5.0,
        lacking=machine.no_small_disk,
    ),
    "rolling restart": Kind(perform=process.rolling_restart, of=EVERYBODY, count=99, most_s=45.0),
    "scale-down": Kind(perform=process.scaled_down, of=WORKERS, seconds=(0.0, 3.0)),
    "policies": Kind(perform=process.policies, seconds=(0.5, 3.0)),
    "overload": Kind(perform=process.overload, seconds=(1.0, 4.0)),
    "garbage": Kind(perform=process.garbage, seconds=(0.0, 0.2)),
    "oversized records": Kind(
        perform=process.inputs(*process.OVERSIZED_INPUTS), seconds=(0.0, 0.3)
    ),
    "raising operator": Kind(perform=process.inputs(*process.RAISING_INPUTS), seconds=(0.0, 0.3)),
}
