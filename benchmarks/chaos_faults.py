"""Injection of faults of processes, broker and input into a running pipeline.

Each function injects one fault, under load, and returns when it began (broker outage: ended). It
raises ``Stuck`` if the pipeline does not recover as it should.
"""

import os
import signal
import time
from collections.abc import Sequence
from functools import partial

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.fault_scene import Fault, Perform, Scene
from benchmarks.rig import Rig, Stuck
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


def killed(scene: Scene, fault: Fault) -> float:
    """Kill roles with SIGKILL one after the other; restart each as `headrace up` does."""
    began_s = time.time()
    for name in fault.targets:
        scene.rig.kill(name)
        scene.rig.pass_time(RESTARTED_AFTER_S)
        scene.rig.start(name)
        scene.rig.pass_time(fault.seconds)
    return began_s


def frozen(scene: Scene, fault: Fault) -> float:
    began_s = time.time()
    for name in fault.targets:
        scene.rig.freeze(name)
        scene.rig.pass_time(fault.seconds)
        scene.rig.thaw(name)
    return began_s


def broker_away(scene: Scene, fault: Fault) -> float:
    stopping = scene.beside.submit(local.stop, scene.broker_home)
    scene.rig.until(stopping.done, "the broker to stop")
    stopping.result()
    scene.rig.pass_time(fault.seconds)
    starting = scene.beside.submit(local.start, scene.broker_home)
    scene.rig.until(starting.done, "the broker to start", 70.0)
    starting.result()
    return time.time()


def broker_killed(scene: Scene, fault: Fault) -> float:
    """Kill a broker of one node, and start it again."""
    running = local.status(scene.broker_home)
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    scene.rig.pass_time(fault.seconds)
    start_lost_nodes(scene)
    return time.time()


def broker_frozen(scene: Scene, fault: Fault) -> float:
    """Freeze a broker of one node; its connections stay open and it answers no request."""
    running = local.status(scene.broker_home)
    assert running is not None
    os.kill(running.pid, signal.SIGSTOP)
    try:
        scene.rig.pass_time(fault.seconds)
    finally:
        os.kill(running.pid, signal.SIGCONT)
    return time.time()


def _node(scene: Scene, fault: Fault) -> int:
    """Return the process of the node that a fault hits: each kind hits node after node."""
    running = local.status(scene.broker_home)
    assert running is not None
    pid = running.nodes[scene.hits[fault.kind] % len(running.nodes)]
    assert pid is not None
    scene.hits[fault.kind] += 1
    return pid


def node_killed(scene: Scene, fault: Fault) -> float:
    began_s = time.time()
    os.kill(_node(scene, fault), signal.SIGKILL)
    scene.rig.pass_time(fault.seconds)
    scene.returns_s.append(time.time())
    start_lost_nodes(scene)
    return began_s


def node_frozen(scene: Scene, fault: Fault) -> float:
    began_s, pid = time.time(), _node(scene, fault)
    os.kill(pid, signal.SIGSTOP)
    scene.rig.pass_time(fault.seconds)
    scene.returns_s.append(time.time())
    os.kill(pid, signal.SIGCONT)
    _in_sync(scene)
    return began_s


def node_restarted(scene: Scene, fault: Fault) -> float:
    began_s, pid = time.time(), _node(scene, fault)
    os.kill(pid, signal.SIGTERM)
    scene.rig.until(lambda: not psutil.pid_exists(pid) or _gone(pid), "a node to stop", 60.0)
    scene.returns_s.append(time.time())
    start_lost_nodes(scene)
    return began_s


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def start_lost_nodes(scene: Scene) -> None:
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


def stood_still(scene: Scene, fault: Fault) -> float:
    """Freeze roles for longer than their limit; each ends by itself and is started again."""
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


def second_instance(scene: Scene, fault: Fault) -> float:
    """Start another instance of a living role; it must end by itself, refused."""
    rig, began_s = scene.rig, time.time()
    for name in fault.targets:
        code = rig.another(name)
        if code == 0:
            raise Stuck(f"a second {name} was not refused")
    return began_s


def overload(scene: Scene, fault: Fault) -> float:
    """Offer ten times the rate for a while."""
    rig = scene.rig
    rate = rig.rate
    rig.offer(10 * rate)
    rig.pass_time(fault.seconds)
    rig.offer(rate)
    return time.time()


def policies(scene: Scene, fault: Fault) -> float:
    """Apply the next two of the pipeline's policies; the second stays until the next such fault."""
    began_s, every = time.time(), scene.rig.description
    names = (*every["policies"], every["policy"])
    for _ in range(2):
        policy = names[scene.hits[fault.kind] % len(names)]
        scene.hits[fault.kind] += 1
        result = scene.rig.command("apply-policy", policy=policy)
        if not result.ok:
            raise Stuck(f"policy {policy} was refused: {result.message}")
        scene.rig.pass_time(fault.seconds)
    return began_s


def overlapping(scene: Scene, fault: Fault) -> float:
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


def rolling_restart(scene: Scene, fault: Fault) -> float:
    """Restart role after role; every other one then writes the format of an earlier release."""
    rig, began_s = scene.rig, time.time()
    own = rig.variables
    for number, name in enumerate(fault.targets):
        stopped(rig, name)
        rig.variables = {**own, WRITE_RELEASE: EARLIER_RELEASE} if number % 2 else own
        rig.start(name)
        rig.until(rig.serves, f"{name} to be back")
    rig.variables = own
    return began_s


def scaled_down(scene: Scene, fault: Fault) -> float:
    """Drain a worker, stop it, start it and restore it."""
    rig, began_s = scene.rig, time.time()
    for name in fault.targets:
        _commanded(rig, "drain", name)
        rig.until(partial(_without, rig, name), f"{name} to be drained", DRAINED_WITHIN_S)
        stopped(rig, name)
        rig.pass_time(fault.seconds)
        rig.start(name)
        _commanded(rig, "restore", name)
    return began_s


def _without(rig: Rig, worker: str) -> bool:
    return all(lease.worker != worker for lease in rig.plan.leases)


def stopped(rig: Rig, name: str) -> None:
    code = rig.stop(name)
    if code != 0:
        raise Stuck(f"{name} was asked to end and exited with {code}")


def _commanded(rig: Rig, action: str, target: str) -> None:
    result = rig.command(action, target=target)
    if not result.ok:
        raise Stuck(f"{action} of {target} was refused: {result.message}")


def garbage(scene: Scene, fault: Fault) -> float:
    began_s = time.time()
    for payload, headers in GARBAGE:
        scene.garbage.append(scene.rig.put(payload, list(headers)))
        scene.rig.pass_time(fault.seconds)
    return began_s


def inputs(*payloads: bytes) -> Perform:
    def asked(scene: Scene, fault: Fault) -> float:
        began_s = time.time()
        for payload in payloads:
            scene.rig.ask(payload)
            scene.rig.pass_time(fault.seconds)
        return began_s

    return asked
