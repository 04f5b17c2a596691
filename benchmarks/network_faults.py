"""Faults of the network between one role and the broker, by the role's proxy.

Each function returns when the network was well again: from then on the time to recover counts.
"""

import time

from benchmarks.fault_scene import Fault, Scene
from benchmarks.rig import Stuck
from benchmarks.tcp_proxy import TcpProxy

SLOW_S = 0.1  # each way, beside an SLO of a second


def cut(scene: Scene, fault: Fault) -> float:
    """Let nothing pass in either direction."""
    proxies = [proxy_of(scene, name) for name in fault.targets]
    for proxy in proxies:
        proxy.network.cut()
    return _healed(scene, fault, proxies)


def deafened(scene: Scene, fault: Fault) -> float:
    """Let a role send, and hear nothing."""
    proxies = [proxy_of(scene, name) for name in fault.targets]
    for proxy in proxies:
        proxy.network.to_client = False
    return _healed(scene, fault, proxies)


def muted(scene: Scene, fault: Fault) -> float:
    """Let a role hear, and send nothing."""
    proxies = [proxy_of(scene, name) for name in fault.targets]
    for proxy in proxies:
        proxy.network.to_broker = False
    return _healed(scene, fault, proxies)


def slowed(scene: Scene, fault: Fault) -> float:
    """Let every byte take ``SLOW_S`` longer."""
    proxies = [proxy_of(scene, name) for name in fault.targets]
    for proxy in proxies:
        proxy.network.delay_s = SLOW_S
    return _healed(scene, fault, proxies)


def half_opened(scene: Scene, fault: Fault) -> float:
    """Close a role's connections at the broker only; the role is to find out by itself."""
    for name in fault.targets:
        proxy_of(scene, name).break_half_open()
    return time.time()


def proxy_of(scene: Scene, role: str) -> TcpProxy:
    """Return a role's proxy."""
    if scene.proxies is None:
        raise Stuck(f"{role} has no proxy: faults of the network need a broker of one node")
    return scene.proxies.of(role)


def _healed(scene: Scene, fault: Fault, proxies: list[TcpProxy]) -> float:
    scene.rig.pass_time(fault.seconds)
    for proxy in proxies:
        proxy.network.heal()
    return time.time()
