"""What ``headrace profile`` does with its options, and what it prints."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.config import PipelineFile
from headrace.profiling import Settings, default_out, shown
from headrace.profiling import profile as measure
from profiles.table import ProfileTable


def profiled(file: PipelineFile, asked: Mapping[str, Any]) -> tuple[Path, ProfileTable]:
    """Measure as the options ask; where it was written, and the table."""
    settings = Settings(
        batches=asked["batches"],
        busy=asked["busy"],
        samples=asked["samples"],
        seed=asked["seed"],
    )
    devices = asked["devices"]
    out = asked["out"] or default_out(file, devices)
    with shown(sys.stderr) as step:
        return out, measure(file, devices, out, settings, step)


def table_text(table: ProfileTable) -> str:
    """A line per variant and device: accuracy, medians at the smallest and largest batch, load."""
    lines = []
    for entry in table.entries:
        first, last = entry.latency[0], entry.latency[-1]
        lines.append(
            f"{entry.task}/{entry.variant} on {entry.device}: accuracy {entry.accuracy:.3f}, "
            f"{first.p50_s * 1e3:.2f} ms for {first.batch}, {last.p50_s * 1e3:.2f} ms for "
            f"{last.batch}, load {entry.load_s:.2f} s"
        )
    return "\n".join(lines)
