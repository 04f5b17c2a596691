"""What ``headrace profile`` does with its options, and what it prints."""

import os
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
            f"{first.p50_s * 1e3:.3g} ms for {first.batch}, {last.p50_s * 1e3:.3g} ms for "
            f"{last.batch}, load {entry.load_s:.2f} s"
        )
    return "\n".join(lines)


def written_text(file: PipelineFile, out: Path) -> str:
    """Where the profile is, and what is still to be done for the pipeline to use it."""
    if out.resolve() in (path.resolve() for path in file.profiles):
        return f"written to {out}, which {file.path.name} names"
    name = os.path.relpath(out, file.path.parent)
    return f"written to {out}; to plan with it add to {file.path.name}:  profiles: [{name}]"
