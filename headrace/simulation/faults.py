"""Schedule the faults of a simulation, read from a file or drawn from a seed.

A faults file is a list, times counted from the first arrival:

    - {at: 10s, kind: death, device: emulated-3, for: 5s}      # without `for`: for good
    - {at: 15s, kind: death, device: emulated-2, notice: 30s}  # revoked
    - {at: 20s, kind: slow, device: emulated-1, for: 10s, factor: 3}
    - {at: 30s, kind: control-down, for: 3s}
    - {at: 40s, kind: broker-pause, for: 2s}
    - {at: 50s, kind: burst, for: 5s, factor: 4}

A device that is revoked with ``notice`` ends within that time. A rented one is replaced at once,
and serves until its last eight seconds, in which it hands over its work, as after SIGTERM.

Faults may overlap: a device that is slow by two of them is so by the larger factor, and a device or
the control app is back once the last of its faults has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.arrivals.arrival_processes import Times
from headrace.config.yaml_source import Place, Source, read_source, suggestion
from headrace.errors import PipelineError
from schemas.durations import duration

DEATH, SLOW, CONTROL_DOWN, BROKER_PAUSE, BURST = (
    "death", "slow", "control-down", "broker-pause", "burst",
)  # fmt: skip
_KEYS = {
    DEATH: ("at", "kind", "device", "notice", "for"),
    SLOW: ("at", "kind", "device", "for", "factor"),
    CONTROL_DOWN: ("at", "kind", "for"),
    BROKER_PAUSE: ("at", "kind", "for"),
    BURST: ("at", "kind", "for", "factor"),
}
_OPTIONAL = {DEATH: ("notice", "for")}
_DRAWN_FOR_S = {DEATH: 10.0, SLOW: 10.0, CONTROL_DOWN: 5.0, BROKER_PAUSE: 1.0, BURST: 5.0}
_DRAWN_FACTOR = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that begins ``at_s`` after the first arrival and lasts ``for_s``, seconds.

    A death with ``notice_s`` above 0 begins with the notice.
    """

    at_s: float
    kind: str
    device: str = ""
    for_s: float = float("inf")
    factor: float = 1.0
    notice_s: float = 0.0


def read_faults(path: Path, devices: Sequence[str]) -> tuple[Fault, ...]:
    """Return the schedule in a file; raise ``PipelineError`` naming the line."""
    if not path.is_file() or not _content(path):
        raise PipelineError(
            f"{path} is no file with faults; docs/explanation/simulation.md shows one"
        )
    source = read_source(path)
    if not isinstance(source.values, list):
        raise source.error((), "a list of faults is wanted, as in - {at: 10s, kind: death, ...}")
    return tuple(_fault(source, at, devices) for at in range(len(source.values)))


def _content(path: Path) -> bool:
    """Return whether a file has more than comments."""
    lines = (line.strip() for line in path.read_bytes().splitlines())
    return any(line and not line.startswith(b"#") for line in lines)


def random_faults(
    count: int, seconds: float, devices: Sequence[str], rng: np.random.Generator
) -> tuple[Fault, ...]:
    """Return ``count`` faults of random kinds, uniformly distributed over ``seconds``."""
    kinds = list(_DRAWN_FOR_S)
    found = []
    for at_s in sorted(rng.uniform(0, seconds, count).tolist()):
        kind = kinds[int(rng.integers(len(kinds)))]
        device = devices[int(rng.integers(len(devices)))] if "device" in _KEYS[kind] else ""
        for_s = float(rng.exponential(_DRAWN_FOR_S[kind]))
        found.append(Fault(at_s=at_s, kind=kind, device=device, for_s=for_s, factor=_DRAWN_FACTOR))
    return tuple(found)


def with_bursts(times: Times, faults: Sequence[Fault], rng: np.random.Generator) -> Times:
    """Return the arrivals with those that bursts add: ``factor`` times as many in a burst."""
    added = [times]
    for fault in faults:
        if fault.kind == BURST:
            until_s = fault.at_s + fault.for_s
            there = int(np.searchsorted(times, until_s) - np.searchsorted(times, fault.at_s))
            more = rng.poisson(there * (fault.factor - 1.0))
            added.append(rng.uniform(fault.at_s, until_s, more))
    return times if len(added) == 1 else np.sort(np.concatenate(added))


def _fault(source: Source, at: int, devices: Sequence[str]) -> Fault:
    row, place = source.values[at], (at,)
    kind = _kind(source, row, place)
    for key in row:
        if key not in _KEYS[kind]:
            raise source.error(
                (at, key), f"a {kind} has no {key!r}; {suggestion(key, list(_KEYS[kind]))}"
            )
    for key in _KEYS[kind]:
        if key not in row and key not in _OPTIONAL.get(kind, ()):
            raise source.error(place, f"a {kind} needs {key!r}; add it")
    return Fault(
        at_s=_seconds(source, (at, "at"), row["at"]),
        kind=kind,
        device=_device(source, (at, "device"), row["device"], devices) if "device" in row else "",
        for_s=_seconds(source, (at, "for"), row["for"]) if "for" in row else float("inf"),
        factor=_factor(source, (at, "factor"), row.get("factor", 1.0), kind),
        notice_s=_seconds(source, (at, "notice"), row["notice"]) if "notice" in row else 0.0,
    )


def _kind(source: Source, row: Any, place: Place) -> str:
    known = ", ".join(_KEYS)
    if not isinstance(row, dict) or "kind" not in row:
        raise source.error(place, f"a fault is a mapping with a kind, one of {known}")
    if not isinstance(row["kind"], str) or row["kind"] not in _KEYS:
        raise source.error((*place, "kind"), f"no fault is called {row['kind']!r}; use {known}")
    return str(row["kind"])


def _seconds(source: Source, place: Place, value: Any) -> float:
    try:
        return duration(value)
    except ValueError as error:
        raise source.error(place, str(error)) from error


def _device(source: Source, place: Place, value: Any, devices: Sequence[str]) -> str:
    if value in devices:
        return str(value)
    some = f"{devices[0]} to {devices[-1]}" if len(devices) > 1 else devices[0]
    raise source.error(place, f"there is no device {value!r}; the cluster has {some}")


def _factor(source: Source, place: Place, value: Any, kind: str) -> float:
    least = 1.0 if kind == BURST else 0.0
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least < value < float("inf"):
        if kind in (DEATH, CONTROL_DOWN, BROKER_PAUSE):
            return 1.0
        raise source.error(place, f"a factor of {value!r} is none; write one above {least:g}")
    return float(value)
