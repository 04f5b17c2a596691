"""Write a pipeline file with device types, prices and query sizes, for tests."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS: Mapping[str, Mapping[int, float]] = {
    "gpu": {10: 0.01, 100: 0.02, 1000: 0.08},
    "slow": {10: 0.02, 100: 0.09, 1000: 0.4},
}
RANK = """\
name: rank
slo: 100ms
comm: 0ms
size: {most: 1000}
sizes: sizes.csv
policy: kairos
tasks:
  rank:
    variants:
      m: {operator: "operators.models.python:Python", arguments: {function: "builtins:bytes"}}
cluster:
  types:
    gpu: {device: emulated, price: 0.5}
    slow: {device: emulated, price: 0.2}
  budget: 1.2
profiles: [profile.json]
"""
# Devices are rented while it runs. By the fluid bound a slow one carries 11/s, a fast one 48/s.
RENTING = (
    RANK.replace("slo: 100ms", "slo: 2s")
    .replace("budget: 1.2", "budget: 1.2\n  scale: supervisor\n  start: {slow: 1}")
    .replace("price: 0.5}", "price: 0.5, boot: 3s}")
)


def a_typed_file(
    folder: Path,
    text: str = RANK,
    sizes: str = "size,probability\n10,0.5\n100,0.4\n1000,0.1\n",
    seconds: Mapping[str, Mapping[int, float]] = SECONDS,
) -> Path:
    """Write the pipeline file with its sizes and its profile; return its path."""
    (folder / "sizes.csv").write_text(sizes, encoding="utf-8")
    entries = [_entry(name, list(rows.items())) for name, rows in seconds.items()]
    document = {"pipeline": "rank", "provenance": {}, "entries": entries}
    (folder / "profile.json").write_text(json.dumps(document), encoding="utf-8")
    path = folder / "rank.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def _entry(device: str, rows: Sequence[tuple[int, float]]) -> dict[str, object]:
    return {
        "task": "rank", "variant": "m", "device": device,
        "operator": "operators.models.python:Python", "weights_sha256": "", "load_s": 0.0,
        "memory_bytes": 0, "accuracy": 1.0, "children": {},
        "latency": [
            {"batch": size, "repeats": 10, "mean_s": s, "p50_s": s, "p90_s": s, "p95_s": s,
             "p99_s": s}
            for size, s in rows
        ],
    }  # fmt: skip
