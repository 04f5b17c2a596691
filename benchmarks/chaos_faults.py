"""Faults for a running pipeline: their kinds, their random order, and their injection.

Faults are drawn from a seeded generator in advance, so that a seed gives the same faults whatever
the pipeline does. Every round has each kind once, in random order.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.rig import Asked, Rig, Stuck
from headrace.broker import local_broker as local
from headrace.broker.connect import WRITE_RELEASE
from headrace.cluster.supervisor import pause_s
from schemas.codec.raw import DEADLINE_HEADER, ID_HEADER
from streams.topics import MAX_RECORD_BYTES

CONTROLS = ("control", "control-2")
RESTARTED_AFTER_S = pause_s(1)  # as `headrace up` does
DRAINED_WITHIN_S = 40.0
EARLIER_RELEASE = "1"

GARBAGE: Sequence[tuple[bytes | None, tuple[tuple[str, bytes], ...]]] = (
    (b"", ()),
    (None, ()),
    (b"1", ((DEADLINE_HEADER, b"soon"),)),
    (b"1", ((DEADLINE_HEADER, b"1764000000"),)),
    (b"1", ((ID_HEADER, b"\xff\xfe"),)),
    (b"1", ((ID_HEADER, b"x" * 10_000),)),
)
# Ingress adds to the payload, so the first one fits the topic of queries and no other.
OVERSIZED_INPUTS = (bytes(MAX_RECORD_BYTES - 500), b"oversized item", b"oversized output")
RAISING_INPUTS = (b"raise", b"short", b"nonsense", b"word")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault to inject; ``seconds`` is its duration, or the pause between its parts."""

    kind: str
    targets: tuple[str, ...]
    seconds: float
    quiet_s: float  # load without faults before this one


@dataclass(frozen=True, slots=True)
class Scene:
    """The running pipeline and the broker that faults are injected into."""

    rig: Rig
    broker_home: Path
    beside: ThreadPoolExecutor  # one thread, for calls that would block the load
    garbage: list[Asked] = field(default_factory=list)  # garbage sent so far


Perform = Callable[[Scene, Fault], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fault. ``of`` holds prefixes of role names; ``count`` of those roles are drawn.

    ``nodes``: the least and most nodes of the broker that it needs. ``median_s``, ``most_s``: the
    bounds of the times to recover.
    """

    perform: Perform
    of: tuple[str, ...] = ()
    count: int = 1
    seconds: tuple[float, float] = (0.0, 0.0)
    nodes: tuple[int, int] = (1, 9)
    median_s: float = float("inf")
    most_s: float = float("inf")


def chosen(nodes: int, longest_s: float = 10.0, names: Sequence[str] = ()) -> Mapping[str, "Kind"]:
    """Return the kinds for a broker of ``nodes`` nodes that last up to ``longest_s``, or those
    named. Raises ``ValueError`` for an unknown name."""
    unknown = sorted(set(names) - KINDS.keys())
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no kind of fault; known: {', '.join(KINDS)}")
    return {
        name: kind
        for name, kind in KINDS.items()
        if (not names or name in names)
        and nodes in range(kind.nodes[0], kind.nodes[1] + 1)
        and kind.seconds[0] <= longest_s
    }


def drawn(
    rng: np.random.Generator, roles: Sequence[str], kinds: Mapping[str, "Kind"] | None = None
) -> Iterator[Fault]:
    """Yield faults endlessly, by default of every kind for one broker."""
    kinds = chosen(1) if kinds is None else kinds
    while True:
        for name in rng.permutation(sorted(kinds)):
            kind = kinds[str(name)]
            among = [role for role in roles if role.startswith(kind.of)] if kind.of else []
            targets = rng.permutation(among)[: kind.count]
            yield Fault(
                kind=str(name),
                targets=tuple(map(str, targets)),
                seconds=round(float(rng.uniform(*kind.seconds)), 3),
                quiet_s=round(float(rng.uniform(0.5, 2.0)), 3),
            )


def perform(scene: Scene, fault: Fault) -> float:
    """Inject a fault; return when it began (broker outage: ended). Raises ``Stuck``."""
    return KINDS[fault.kind].perform(scene, fault)


def _killed(scene: Scene, fault: Fault) -> float:
    """Kill roles with SIGKILL one after the other; restart each as `headrace up` does."""
    began_s = time.time()
    for name in fault.targets:
        scene.rig.kill(name)
        scene.rig.pass_time(RESTARTED_AFTER_S)
        scene.rig.start(name)
        scene.rig.pass_time(fault.seconds)
    return began_s


def _frozen(scene: Scene, fault: Fault) -> float:
    began_s = time.time()
    for name in fault.targets:
        scene.rig.freeze(name)
        scene.rig.pass_time(fault.seconds)
        scene.rig.thaw(name)
    return began_s


def _broker_away(scene: Scene, fault: Fault) -> float:
    stopping = scene.beside.submit(local.stop, scene.broker_home)
    scene.rig.until(stopping.done, "the broker to stop")
    stopping.result()
    scene.rig.pass_time(fault.seconds)
    starting = scene.beside.submit(local.start, scene.broker_home)
    scene.rig.until(starting.done, "the broker to start", 70.0)
    starting.result()
    return time.time()


def _broker_killed(scene: Scene, fault: Fault) -> float:
    """Kill a broker of one node, and start it again."""
    running = local.status(scene.broker_home)
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    scene.rig.pass_time(fault.seconds)
    _nodes_started(scene)
    return time.time()


def _node(scene: Scene, fault: Fault) -> int:
    """Return the process of the node that a fault hits: one after the other, by its duration."""
    running = local.status(scene.broker_home)
    assert running is not None
    pid = running.nodes[int(fault.seconds * 1000) % len(running.nodes)]
    assert pid is not None
    return pid


def _node_killed(scene: Scene, fault: Fault) -> float:
    began_s = time.time()
    os.kill(_node(scene, fault), signal.SIGKILL)
    scene.rig.pass_time(fault.seconds)
    _nodes_started(scene)
    return began_s


def _node_frozen(scene: Scene, fault: Fault) -> float:
    began_s, pid = time.time(), _node(scene, fault)
    os.kill(pid, signal.SIGSTOP)
    scene.rig.pass_time(fault.seconds)
    os.kill(pid, signal.SIGCONT)
    _in_sync(scene)
    return began_s


def _node_restarted(scene: Scene, fault: Fault) -> float:
    began_s, pid = time.time(), _node(scene, fault)
    os.kill(pid, signal.SIGTERM)
    scene.rig.until(lambda: not psutil.pid_exists(pid) or _gone(pid), "a node to stop", 60.0)
    _nodes_started(scene)
    return began_s


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _nodes_started(scene: Scene) -> None:
    """Start the nodes that do not run, under load, and wait until they have all records."""
    starting = scene.beside.submit(local.start, scene.broker_home)
    scene.rig.until(starting.done, "the broker to start", 90.0)
    starting.result()
    _in_sync(scene)


def _in_sync(scene: Scene) -> None:
    """Wait until every partition has all of its copies: the next fault may hit another node."""
    admin = AdminClient({"bootstrap.servers": scene.rig.bootstrap})

    def whole() -> bool:
        found = scene.beside.submit(admin.list_topics, timeout=5.0)
        scene.rig.until(found.done, "metadata", 30.0)
        try:
            listed = found.result().topics.values()
        except KafkaException:
            return False
        return all(
            len(p.isrs) == len(p.replicas) and p.leader >= 0
            for topic in listed
            for p in topic.partitions.values()
        )

    scene.rig.until(whole, "every copy to be in sync", 90.0)


def _stood_still(scene: Scene, fault: Fault) -> float:
    """Freeze roles for longer than they live on; each ends by itself and is started again."""
    rig, began_s = scene.rig, time.time()
    for name in fault.targets:
        rig.freeze(name)
        rig.pass_time(fault.seconds)
        rig.may_end.add(name)
        rig.thaw(name)
        rig.until(partial(rig.ended, name), f"{name} to end")
        rig.may_end.discard(name)
        rig.start(name)
    return began_s


def _second_instance(scene: Scene, fault: Fault) -> float:
    """Start another instance of a living role; it must end by itself, refused."""
    rig, began_s = scene.rig, time.time()
    for name in fault.targets:
        code = rig.another(name)
        if code == 0:
            raise Stuck(f"a second {name} was not refused")
    return began_s


def _overload(scene: Scene, fault: Fault) -> float:
    """Offer ten times the rate for a while."""
    rig = scene.rig
    rate = rig.rate
    rig.offer(10 * rate)
    rig.pass_time(fault.seconds)
    rig.offer(rate)
    return time.time()


def _policies(scene: Scene, fault: Fault) -> float:
    """Change the policy and change it back."""
    began_s = time.time()
    for policy in ("swapped", "static"):
        result = scene.rig.command("apply-policy", policy=policy)
        if not result.ok:
            raise Stuck(f"policy {policy} was refused: {result.message}")
        scene.rig.pass_time(fault.seconds)
    return began_s


def _overlapping(scene: Scene, fault: Fault) -> float:
    """Freeze a worker, kill a second role within it, and a third before the first is back."""
    rig, began_s = scene.rig, time.time()
    frozen, *killed = fault.targets
    rig.freeze(frozen)
    for name in killed:
        rig.kill(name)
        rig.pass_time(RESTARTED_AFTER_S)
        rig.start(name)
    rig.pass_time(fault.seconds)
    rig.thaw(frozen)
    return began_s


def _rolling_restart(scene: Scene, fault: Fault) -> float:
    """Restart role after role; every other one then writes the format of an earlier release."""
    rig, began_s = scene.rig, time.time()
    for number, name in enumerate(fault.targets):
        _stopped(rig, name)
        rig.variables = {WRITE_RELEASE: EARLIER_RELEASE} if number % 2 else {}
        rig.start(name)
        rig.until(rig.serves, f"{name} to be back")
    rig.variables = {}
    return began_s


def _scaled_down(scene: Scene, fault: Fault) -> float:
    """Drain a worker, stop it, start it and restore it."""
    rig, began_s = scene.rig, time.time()
    for name in fault.targets:
        _commanded(rig, "drain", name)
        rig.until(partial(_without, rig, name), f"{name} to be drained", DRAINED_WITHIN_S)
        _stopped(rig, name)
        rig.pass_time(fault.seconds)
        rig.start(name)
        _commanded(rig, "restore", name)
    return began_s


def _without(rig: Rig, worker: str) -> bool:
    return all(lease.worker != worker for lease in rig.plan.leases)


def _stopped(rig: Rig, name: str) -> None:
    code = rig.stop(name)
    if code != 0:
        raise Stuck(f"{name} was told to end and did so with {code}")


def _commanded(rig: Rig, action: str, target: str) -> None:
    result = rig.command(action, target=target)
    if not result.ok:
        raise Stuck(f"{action} of {target} was refused: {result.message}")


def _garbage(scene: Scene, fault: Fault) -> float:
    began_s = time.time()
    for payload, headers in GARBAGE:
        scene.garbage.append(scene.rig.put(payload, list(headers)))
        scene.rig.pass_time(fault.seconds)
    return began_s


def _inputs(*payloads: bytes) -> Perform:
    def asked(scene: Scene, fault: Fault) -> float:
        began_s = time.time()
        for payload in payloads:
            scene.rig.ask(payload)
            scene.rig.pass_time(fault.seconds)
        return began_s

    return asked


WORKERS, EVERYBODY = ("cpu-",), ("control", "egress", "cpu-", "ingress")
ONE, THREE = (1, 1), (3, 9)
KINDS: Mapping[str, Kind] = {
    "kill worker": Kind(perform=_killed, of=WORKERS, median_s=1.0, most_s=2.0),
    "kill control app": Kind(perform=_killed, of=CONTROLS),
    "kill ingress": Kind(perform=_killed, of=("ingress",)),
    "kill egress": Kind(perform=_killed, of=("egress",)),
    "kill three": Kind(perform=_killed, of=EVERYBODY, count=3, seconds=(0.0, 1.5)),
    "overlapping": Kind(perform=_overlapping, of=("egress", "cpu-"), count=3, seconds=(0.3, 2.0)),
    "freeze worker": Kind(perform=_frozen, of=WORKERS, seconds=(0.3, 5.0)),
    "freeze control app": Kind(perform=_frozen, of=CONTROLS, seconds=(0.5, 10.0)),
    "freeze ingress": Kind(perform=_frozen, of=("ingress",), seconds=(0.3, 3.0)),
    "freeze egress": Kind(perform=_frozen, of=("egress",), seconds=(0.3, 3.0)),
    "stand still": Kind(perform=_stood_still, of=("egress", "ingress"), seconds=(6.0, 9.0)),
    "second instance": Kind(perform=_second_instance, of=("egress", "ingress", "cpu-")),
    "broker away": Kind(perform=_broker_away, seconds=(1.0, 6.0), nodes=ONE, most_s=5.0),
    "kill broker": Kind(perform=_broker_killed, seconds=(0.5, 4.0), nodes=ONE, most_s=5.0),
    "long outage": Kind(perform=_broker_away, seconds=(20.0, 90.0), nodes=ONE, most_s=5.0),
    "kill node": Kind(perform=_node_killed, seconds=(1.0, 8.0), nodes=THREE, most_s=5.0),
    "freeze node": Kind(perform=_node_frozen, seconds=(2.0, 12.0), nodes=THREE, most_s=5.0),
    "restart node": Kind(perform=_node_restarted, seconds=(0.0, 1.0), nodes=THREE, most_s=5.0),
    "rolling restart": Kind(perform=_rolling_restart, of=EVERYBODY, count=99),
    "scale-down": Kind(perform=_scaled_down, of=WORKERS, seconds=(0.0, 3.0)),
    "policies": Kind(perform=_policies, seconds=(0.5, 3.0)),
    "overload": Kind(perform=_overload, seconds=(1.0, 4.0)),
    "garbage": Kind(perform=_garbage, seconds=(0.0, 0.2)),
    "oversized records": Kind(perform=_inputs(*OVERSIZED_INPUTS), seconds=(0.0, 0.3)),
    "raising operator": Kind(perform=_inputs(*RAISING_INPUTS), seconds=(0.0, 0.3)),
}
