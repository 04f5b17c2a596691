"""Format a calibration as text."""

from collections.abc import Iterator

import numpy as np

from headrace.cells import columns
from headrace.simulation.world_file import VALID_DAYS, Calibration
from streams.simulated.delays import ANY_SIZE
from streams.simulated.world import Levels, Phase

SHARES = (0.5, 0.9, 0.99)
_HEAD = ("queries/s (wall)", "delay", "devices busy", "samples", "p50", "p90", "p99")
BUSY_HOST = 0.7  # above it, other work on the machine distorts the measurement


def calibration_text(found: Calibration) -> str:
    """Return the quantiles of every phase as a table, and the conditions."""
    lines = [_HEAD, *(row for phase in found.world.phases for row in _rows(phase))]
    return "\n".join([columns(lines, left=(1,)), "", *_conditions(found)])


def _rows(phase: Phase) -> Iterator[tuple[str, ...]]:
    stretch = {
        f"batch of {task} on {device} / median": each
        for (task, device, size), each in phase.stretch.items()
        if size == ANY_SIZE
    }
    kinds: dict[str, tuple[Levels, float, str]] = {
        "hop": (phase.hops, 1e3, " ms"),
        "inbound, each of two hops": (phase.ways_in, 1e3, " ms"),
        "outbound": (phase.ways_out, 1e3, " ms"),
        **{f"start of {task}": (each, 1e3, " ms") for task, each in phase.starts.items()},
        **{name: (each, 1.0, "") for name, each in stretch.items()},
    }
    for name, (levels, factor, unit) in kinds.items():
        for level, seen in sorted(levels.items()):
            values = [value * factor for _, value in seen]
            quantiles = (f"{float(np.quantile(values, q)):.2f}{unit}" for q in SHARES)
            yield (f"{phase.rate_qps:g}", name, str(level), str(len(seen)), *quantiles)


def _conditions(found: Calibration) -> Iterator[str]:
    share = found.host_cpu_share
    busy = "unknown" if share is None else f"{share:.0%}"
    slower = f", time {found.dilate:g} times slower" if found.dilate != 1 else ""
    devices = ", ".join(f"{count} {device}" for device, count in found.devices.items())
    yield f"{found.pipeline} with {found.policy}, {devices}{slower}; {found.date}"
    yield f"{found.machine}; host {busy} busy; valid for {VALID_DAYS} days on this machine"
    if share is not None and share > BUSY_HOST:
        yield "the host was more than 70 % busy, so the calibration is valid only under such a load"
