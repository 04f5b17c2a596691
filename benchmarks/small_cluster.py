"""Write a small pipeline of emulated devices with given latencies and fan-outs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

LINES = {"detect": ["read"], "read": []}


def a_cluster(
    folder: Path,
    *,
    children: Mapping[str, Sequence[str]] = LINES,
    fan_out: int = 2,
    batch_s: float = 0.01,
    load_s: float = 0.5,
    small_load_s: float | None = None,
    devices: int = 4,
    **changes: Any,
) -> Path:
    """Write a pipeline whose tasks have two variants: "small", and "large", which is twice as slow
    and more accurate. A batch takes ``batch_s`` plus half of it for each further item, a load
    ``load_s``, of "small" ``small_load_s`` where that is given."""
    loads_s = {"small": load_s if small_load_s is None else small_load_s, "large": load_s}
    document = {
        "name": "lines",
        "slo": "250ms",
        "profiles": ["profile.json"],
        "tasks": {
            task: {
                "children": list(below),
                "variants": {
                    name: {"operator": f"lines:{name.title()}", "batch": 8} for name in loads_s
                },
            }
            for task, below in children.items()
        },
        "policies": {
            "fast": {"replicas": {f"{task}/small": 1 for task in children}},
        },
        "cluster": {"devices": {"emulated": devices}},
        **changes,
    }
    entries = [
        an_entry(task, name, below, fan_out, batch_s, seconds)
        for task, below in children.items()
        for name, seconds in loads_s.items()
    ]
    write_profile(folder, entries)
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def write_profile(folder: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write the profile of the pipeline."""
    profile = {"pipeline": "lines", "provenance": {}, "entries": entries}
    (folder / "profile.json").write_text(json.dumps(profile))


def an_entry(
    task: str, variant: str, children: Sequence[str], fan_out: int, batch_s: float, load_s: float
) -> dict[str, Any]:
    """Return the profile entry of a variant, with a latency spread of some percent."""
    slower, accuracy = (1.0, 0.8) if variant == "small" else (2.0, 0.95)
    spread = {fan_out - 1: 0.25, fan_out: 0.5, fan_out + 1: 0.25} if fan_out else {0: 1.0}
    counts = {str(count): share for count, share in spread.items()}
    return {
        "task": task,
        "variant": variant,
        "device": "cuda:0",
        "operator": f"lines:{variant.title()}",
        "weights_sha256": "",
        "load_s": load_s,
        "memory_bytes": 1000,
        "accuracy": accuracy,
        "children": {child: {"mean": fan_out, "counts": counts} for child in children},
        "latency": [a_row(size, slower * batch_s * (1 + size) / 2) for size in (1, 2, 4, 8)],
    }


def a_row(batch: int, seconds: float) -> dict[str, float]:
    """Return the latency row of one batch size."""
    return {
        "batch": batch, "repeats": 100, "mean_s": seconds, "p50_s": seconds * 0.99,
        "p90_s": seconds * 1.05, "p95_s": seconds * 1.08, "p99_s": seconds * 1.15,
    }  # fmt: skip


def some_arrivals(folder: Path, rate_qps: float = 60.0, seconds: float = 10.0) -> Path:
    """Write a file of evenly spaced arrivals, in ms."""
    path = folder / "arrivals.txt"
    count = int(rate_qps * seconds)
    path.write_text("".join(f"{1e3 * at / rate_qps:.3f}\n" for at in range(count)))
    return path
