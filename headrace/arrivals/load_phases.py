"""A load in phases: Poisson arrivals whose rate is constant or changes linearly in each phase.

As text: ``quiet=16s@3.3,rising=24s@3.3-82,peak=16s@82``, a name, a length and one or two rates in
queries/s for each phase.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

import numpy as np

from headrace.arrivals.arrival_processes import MOST_QPS, Times, check_number, ramp
from headrace.errors import ArrivalsError
from schemas.durations import duration

_NUMBER = r"\d+(?:\.\d+)?"
_PHASE = re.compile(
    rf"(?P<name>[A-Za-z][\w-]*)=(?P<length>[\w.]+)@(?P<begin>{_NUMBER})(?:-(?P<end>{_NUMBER}))?"
)


@dataclass(frozen=True, slots=True)
class LoadPhase:
    """A part of a load: its rate changes linearly from one value to the other."""

    name: str
    seconds: float
    from_qps: float
    to_qps: float

    def __str__(self) -> str:
        rates = dict.fromkeys(f"{rate:g}" for rate in (self.from_qps, self.to_qps))
        return f"{self.name}={self.seconds:g}s@{'-'.join(rates)}"


@dataclass(frozen=True, slots=True)
class Phases:
    """Poisson arrivals at the rates of one or more phases, one after the other."""

    phases: tuple[LoadPhase, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.phases))

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Return the phases that a text names; raises ``ArrivalsError``."""
        made = cls(tuple(_phase(part.strip()) for part in text.split(",")))
        check_number(made.mean_qps * made.seconds)
        if not made.mean_qps:
            raise ArrivalsError(
                f"the phases {text!r} send nothing; give one of them a rate above 0"
            )
        return made

    @property
    def seconds(self) -> float:
        """The length of the load."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def mean_qps(self) -> float:
        """The expected mean rate."""
        queries = sum(p.seconds * (p.from_qps + p.to_qps) / 2 for p in self.phases)
        return queries / self.seconds

    @property
    def peak_qps(self) -> float:
        """The highest rate."""
        return max(max(phase.from_qps, phase.to_qps) for phase in self.phases)

    def drawn(self, rng: np.random.Generator) -> Times:
        """Return the arrival times of one run."""
        return np.concatenate(
            [begin + ramp(p.from_qps, p.to_qps, p.seconds, rng) for p, begin, _ in self.spans()]
        )

    def spans(self) -> Iterator[tuple[LoadPhase, float, float]]:
        """Yield each phase with its begin and end, in seconds from the start."""
        ends = accumulate(phase.seconds for phase in self.phases)
        for end, phase in zip(ends, self.phases, strict=True):
            yield phase, end - phase.seconds, end

    def at(self, elapsed_s: float) -> tuple[str, float]:
        """Return the phase and its rate at a time; ("over", 0.0) after the last phase."""
        for phase, begin, end in self.spans():
            if elapsed_s < end:
                part = max(0.0, elapsed_s - begin) / phase.seconds
                return phase.name, phase.from_qps + part * (phase.to_qps - phase.from_qps)
        return "over", 0.0


def _phase(text: str) -> LoadPhase:
    found = _PHASE.fullmatch(text)
    try:
        seconds = duration(found["length"]) if found else 0.0
    except ValueError:
        seconds = 0.0
    if found is None or seconds <= 0:
        raise ArrivalsError(
            f"{text!r} is no phase; write NAME=LENGTH@RATE or NAME=LENGTH@RATE-RATE in queries/s, "
            "as in rising=24s@3.3-82"
        )
    begin, end = float(found["begin"]), float(found["end"] or found["begin"])
    if max(begin, end) > MOST_QPS:
        raise ArrivalsError(f"{text!r}: {MOST_QPS} queries/s are the most")
    return LoadPhase(found["name"], seconds, begin, end)
