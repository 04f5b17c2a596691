"""Faults for a running pipeline: their kinds, their random order, and their injection.

Faults are drawn from a seeded generator in advance, so that a seed gives the same faults whatever
the pipeline does. Every round has each kind once, in random order.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

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
    """A kind of fault. ``of`` holds prefixes of role names; ``count`` of those roles are drawn."""

    perform: Perform
    of: tuple[str, ...] = ()
    count: int = 1
    seconds: tuple[float, float] = (0.0, 0.0)


def drawn(rng: np.random.Generator, roles: Sequence[str]) -> Iterator[Fault]:
    """Yield faults endlessly."""
    while True:
        for name in rng.permutation(sorted(KINDS)):
            kind = KINDS[str(name)]
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
KINDS: Mapping[str, Kind] = {
    "kill worker": Kind(perform=_killed, of=WORKERS),
    "kill control app": Kind(perform=_killed, of=CONTROLS),
    "kill ingress": Kind(perform=_killed, of=("ingress",)),
    "kill egress": Kind(perform=_killed, of=("egress",)),
    "kill three": Kind(perform=_killed, of=EVERYBODY, count=3, seconds=(0.0, 1.5)),
    "freeze worker": Kind(perform=_frozen, of=WORKERS, seconds=(0.3, 5.0)),
    "freeze control app": Kind(perform=_frozen, of=CONTROLS, seconds=(0.5, 10.0)),
    "broker away": Kind(perform=_broker_away, seconds=(1.0, 6.0)),
    "rolling restart": Kind(perform=_rolling_restart, of=EVERYBODY, count=99),
    "scale-down": Kind(perform=_scaled_down, of=WORKERS, seconds=(0.0, 3.0)),
    "garbage": Kind(perform=_garbage, seconds=(0.0, 0.2)),
    "oversized records": Kind(perform=_inputs(*OVERSIZED_INPUTS), seconds=(0.0, 0.3)),
    "raising operator": Kind(perform=_inputs(*RAISING_INPUTS), seconds=(0.0, 0.3)),
}
