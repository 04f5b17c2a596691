"""How long does a batch take where workers share the cores of one machine?

A profile of ``cpu`` is measured while other workers are busy on the same cores. In a run there
may be more or fewer: with a core for each a batch takes its median, which companions do not move
as long as they do not crowd it out for most of the time; with more workers than cores it takes
what was measured, by how much more of them there are than there were.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from operators.models.emulated import Emulated
from profiles.table import ProfileTable


class SharedCores:
    """The cores, and until when which batch runs on them. ``measured``: workers that were busy when
    the profile was taken."""

    def __init__(self, cores: int, measured: int, clock: Callable[[], float]) -> None:
        self._cores = cores
        self._measured = max(measured, cores)
        self._clock = clock
        self._until: list[float] = []

    def taken(self, alone_s: float, crowded_s: float) -> float:
        """The seconds of a batch that begins now, given what it takes with a core of its own and
        what it took when the profile was measured."""
        now = self._clock()
        self._until = [until for until in self._until if until > now]
        busy = len(self._until) + 1
        seconds = alone_s if busy <= self._cores else crowded_s * busy / self._measured
        self._until.append(now + seconds)
        return seconds


class Contended:
    """A variant on shared cores (``streams.simulated.Model``): ``drawn`` as measured in company,
    ``median`` without."""

    def __init__(self, cores: SharedCores, drawn: Emulated, median: Emulated) -> None:
        self._cores = cores
        self._drawn = drawn
        self._median = median
        self.load_s = drawn.load_s
        self.predict: Callable[[Sequence[Any]], list[Any]] = drawn.predict

    def latency_s(self, batch: int) -> float:
        """Seconds that this run of a batch takes."""
        return self._cores.taken(self._median.latency_s(batch), self._drawn.latency_s(batch))


def measured_with(profile: ProfileTable, device: str, otherwise: int) -> int:
    """How many workers were busy on a kind of device when the profile was taken."""
    said = profile.provenance.get("busy_devices")
    others = said.get(device) if isinstance(said, Mapping) else None
    return otherwise if others is None else len(others) + 1
