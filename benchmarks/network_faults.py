"""Faults of the network between one role and the broker, by the role's proxy.

Each function returns when the network was well again; the time to recover counts from then on.
"""

import time

from benchmarks.fault_scene import Fault, Scene
from benchmarks.rig import Stuck
from benchmarks.tcp_proxy import TcpProxy

SLOW_S = 0.1  # each way, beside an SLO of a second


def cut(scene: Scene, fault: Fault) -> float:
    """Let nothing pass in either direction."""
    return _disturbed(scene, fault, to_broker=False, to_client=False)


def deafened(scene: Scene, fault: Fault) -> float:
    """Let a role send, but receive nothing."""
    return _disturbed(scene, fault, to_client=False)


def muted(scene: Scene, fault: Fault) -> float:
    """Let a role receive, but send nothing."""
    return _disturbed(scene, fault, to_broker=False)


def slowed(scene: Scene, fault: Fault) -> float:
    """Let every byte take ``SLOW_S`` longer."""
    return _disturbed(scene, fault, delay_s=SLOW_S)


def half_opened(scene: Scene, fault: Fault) -> float:
    """Close a role's connections at the broker only; the role has to detect it."""
    for name in fault.targets:
        proxy_of(scene, name).break_half_open()
    return time.time()


def host_cut_off(scene: Scene, fault: Fault) -> float:
    """Take down the links of the targets' hosts for the fault's seconds."""
    hosts = [scene.rig.hosts[name] for name in fault.targets]
    for host in hosts:
        host.cut_off()
    scene.rig.pass_time(fault.seconds)
    for host in hosts:
        host.connect()
    return time.time()


def proxy_of(scene: Scene, role: str) -> TcpProxy:
    """Return a role's proxy."""
    if scene.proxies is None:
        raise Stuck(f"{role} has no proxy: faults of the network need a broker of one node")
    return scene.proxies.of(role)


def _disturbed(scene: Scene, fault: Fault, **state: float) -> float:
    """Keep the targets' networks in a state for the fault's seconds, then heal them."""
    networks = [proxy_of(scene, name).network for name in fault.targets]
    for network in networks:
        for field, value in state.items():
            setattr(network, field, value)
    scene.rig.pass_time(fault.seconds)
    for network in networks:
        network.heal()
    return time.time()
