"""A simulated process: a clock of its host, a link to the broker, and faults."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from benchmarks.schedules.faulty_broker import Agenda, Link
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline
from streams.live.executors import Emulation


class Wall:
    """The wall clock of a process's host: it may be off, and step."""

    def __init__(self, agenda: Agenda, off_s: float) -> None:
        self._agenda = agenda
        self.off_s = off_s

    def __call__(self) -> float:
        return self._agenda.now + self.off_s


@dataclass(frozen=True, slots=True)
class Making:
    """The parts that a world makes its roles of; tests replace parts to break an invariant."""

    pipeline: Pipeline
    model: Callable[[str, str], Emulation]
    load_s: float
    profile: ProfileTable | None = None  # of the planners
    careless: bool = False  # egress writes without a lease
    eager: bool = False  # commit before sends are confirmed
    forgetful: bool = False  # egress does not read its answers back
    trusting: bool = False  # a refused answer counts as never written
    hasty: bool = False  # egress reads answers back before all that are written can be read


class Process(Protocol):
    """A process of the system."""

    name: str
    life: str
    alive: bool
    link: Link
    wall: Wall

    def die(self, late_s: float | None = None) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
