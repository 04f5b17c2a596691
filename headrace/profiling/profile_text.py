"""Run ``headrace profile`` for its options and render the profile."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.config.pipeline_file import PipelineFile
from headrace.profiling.device_profiling import ProfilingOptions, default_out
from headrace.profiling.device_profiling import profile as measure
from profiles.path_accuracy import gap_text, path_gap
from profiles.profile_table import ProfileTable


def written_profile(
    file: PipelineFile, devices: Sequence[str], out: Path | None, settings: ProfilingOptions
) -> tuple[Path, ProfileTable]:
    """Measure every variant; return the path of the written profile and the profile."""
    out = out or default_out(file, devices)
    return out, measure(file, devices, out, settings)


def profiled_paths(
    file: PipelineFile, devices: Sequence[str], out: Path | None, settings: ProfilingOptions
) -> tuple[Path, ProfileTable]:
    """Measure whole paths; return the path of the extended profile and the profile."""
    from headrace.profiling.path_profiling import profile_paths

    out = out or default_out(file, devices)
    return out, profile_paths(file, devices, out, settings)


def paths_json(table: ProfileTable, out: Path) -> dict[str, Any]:
    """Return every path with its measured accuracy and the product of its variants'."""
    rows = [
        {
            "path": list(each.path),
            "accuracy": each.accuracy,
            "product": round(table.product(each.path), 6),
            "queries": each.queries,
        }
        for each in table.paths
    ]
    return {"out": str(out), "paths": rows}


def paths_text(table: ProfileTable) -> str:
    """Return a line per path, the most accurate first, and the gap to the products."""
    lines = []
    for each in sorted(table.paths, key=lambda each: -each.accuracy):
        product = table.product(each.path)
        lines.append(
            f"{' > '.join(each.path)}: accuracy {each.accuracy:.3f}, product {product:.3f} "
            f"({100 * (each.accuracy - product):+.1f} points)"
        )
    gap = path_gap(table)
    return "\n".join([*lines, *([gap_text(gap)] if gap else [])])


def profile_summary(table: ProfileTable) -> str:
    """Return a line per variant and device: accuracy, median latency at the smallest and largest
    batch, load time; then one per variant that does not run on a device."""
    lines = []
    for entry in table.entries:
        first, last = entry.latency[0], entry.latency[-1]
        lines.append(
            f"{entry.key} on {entry.device}: accuracy {entry.accuracy:.3f}, "
            f"{first.p50_s * 1e3:.3g} ms for {first.batch}, {last.p50_s * 1e3:.3g} ms for "
            f"{last.batch}, load {entry.load_s:.2f} s"
        )
    lines += [f"{job}: skipped: {why}" for job, why in table.left_out.items()]
    return "\n".join(lines)


def written_text(file: PipelineFile, out: Path) -> str:
    """Return the profile's place and, if the file does not name it, the line to add."""
    if out.resolve() in (path.resolve() for path in file.profiles):
        return f"written to {out} (referenced by {file.path.name})"
    name = os.path.relpath(out, file.path.parent)
    return f"written to {out}; to use it for plans, add to {file.path.name}:  profiles: [{name}]"
