"""The rented devices of a simulated run: they boot, serve, hand over their work and end.

A device that dies for good, such as one whose price rose above a bid, is replaced at once. One that
is revoked is replaced at its notice, so that it serves while the other boots.
"""

from collections.abc import Mapping
from itertools import count
from typing import Any, Protocol

from headrace.config.cluster import Cluster
from headrace.config.cluster_cost import prices
from headrace.config.topology import rented_worker
from schemas.effects import Scale
from streams.simulated.simulated_driver import Simulated

LEAVE_S = 8.0  # as worker_role.py waits for others to take over a worker's slots


class Nodes(Protocol):
    """Makes the node of a worker. Call ``rent`` with its device before ``node``."""

    def rent(self, name: str, device: str) -> None: ...
    def node(self, name: str, now: float) -> Any: ...


class RentedFleet:
    """Carries out ``Scale``. A device costs money from its rental to the end of its node."""

    def __init__(
        self, cluster: Cluster, devices: Mapping[str, str], system: Simulated, nodes: Nodes
    ) -> None:
        self._system, self._nodes, self._devices = system, nodes, devices
        self._boot_s = {each.name: each.boot_s for each in cluster.types}
        self._prices = prices(cluster)
        self._here: dict[str, list[str]] = {
            type_: [name for name, device in devices.items() if device == type_]
            for type_ in self._prices
        }
        self._numbers = {type_: count(len(here)) for type_, here in self._here.items()}
        self._since = {name: system.now for here in self._here.values() for name in here}
        self._leaving: dict[str, str] = {}  # types by name
        self._usd = 0.0  # of the devices that have ended

    @property
    def counts(self) -> dict[str, int]:
        """The devices that cost money now, by type."""
        leaving = list(self._leaving.values())
        return {name: len(here) + leaving.count(name) for name, here in self._here.items()}

    @property
    def usd_per_h(self) -> float:
        """The price of the devices that cost money now."""
        return sum(self._prices[name] * n for name, n in self.counts.items())

    @property
    def usd(self) -> float:
        """The cost of all devices so far."""
        running = {name: type_ for type_, here in self._here.items() for name in here}
        open_usd = sum(self._cost(n, type_) for n, type_ in {**running, **self._leaving}.items())
        return self._usd + open_usd

    def has(self, name: str) -> bool:
        """Return whether a node may run: not a worker on a device of a type that is not rented."""
        type_ = self._devices.get(name, "")
        return type_ not in self._here or name in self._here[type_]

    def scale(self, effect: Scale) -> None:
        """Rent or release devices until ``effect.count`` of the type run or boot."""
        here = self._here[effect.type]
        while len(here) < effect.count:
            self._rent(effect.type)
        while len(here) > effect.count:
            self._release(here.pop(), effect.type)

    def lost(self, name: str) -> None:
        """Rent a device to replace one that has died for good."""
        for type_, here in self._here.items():
            if name in here:
                here.remove(name)
                self._end(name, type_)
                self._rent(type_)

    def revoke(self, name: str) -> None:
        """Rent a device to replace one that will end; both cost money until ``ended``."""
        for type_, here in self._here.items():
            if name in here:
                here.remove(name)
                self._leaving[name] = type_
                self._rent(type_)

    def ended(self, name: str) -> None:
        """Record that a device has ended, if it was leaving."""
        type_ = self._leaving.pop(name, None)
        if type_ is not None:
            self._end(name, type_)

    def _rent(self, type_: str) -> None:
        name = rented_worker(type_, next(self._numbers[type_])).name
        self._here[type_].append(name)
        self._since[name] = self._system.now
        self._nodes.rent(name, type_)
        self._system.at(self._system.now + self._boot_s[type_], lambda: self._boot(name, type_))

    def _boot(self, name: str, type_: str) -> None:
        if name in self._here[type_]:
            self._system.start(name, self._nodes.node(name, self._system.now))

    def _release(self, name: str, type_: str) -> None:
        self._leaving[name] = type_
        self._system.retire(name, LEAVE_S, lambda: self.ended(name))

    def _end(self, name: str, type_: str) -> None:
        self._usd += self._cost(name, type_)
        del self._since[name]

    def _cost(self, name: str, type_: str) -> float:
        return self._prices[type_] * (self._system.now - self._since[name]) / 3600
