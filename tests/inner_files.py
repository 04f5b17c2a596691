"""Write a pipeline file of two tasks, the second with a dispatcher, for tests."""

import json
from collections.abc import Mapping
from pathlib import Path

SECONDS: Mapping[str, Mapping[str, float]] = {
    "scan": {"gpu": 0.002, "slow": 0.004},
    "read": {"gpu": 0.01, "slow": 0.04},
}
SCAN, READ = "tests.integration.operators_for_tests:ToThree", "operators.models.python:Python"
TWO_TASKS = f"""\
name: letters
slo: 250ms
policy: static
tasks:
  scan:
    children: [read]
    variants:
      m: {{operator: "{SCAN}", replicas: 1}}
  read:
    dispatch: kairos
    variants:
      m:
        operator: "{READ}"
        arguments: {{function: "builtins:bytes"}}
        replicas: 3
cluster:
  types:
    gpu: {{device: emulated, price: 0.5}}
    slow: {{device: emulated, price: 0.2}}
  start: {{gpu: 2, slow: 2}}
profiles: [profile.json]
"""


def a_two_task_file(folder: Path, text: str = TWO_TASKS) -> Path:
    """Write the pipeline file and its profile; return its path."""
    entries = [
        _entry(task, device, seconds)
        for task, by_device in SECONDS.items()
        for device, seconds in by_device.items()
    ]
    document = {"pipeline": "letters", "provenance": {}, "entries": entries}
    (folder / "profile.json").write_text(json.dumps(document), encoding="utf-8")
    path = folder / "letters.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def _entry(task: str, device: str, s: float) -> dict[str, object]:
    scans = task == "scan"
    return {
        "task": task, "variant": "m", "device": device, "operator": SCAN if scans else READ,
        "weights_sha256": "", "load_s": 0.0, "memory_bytes": 0, "accuracy": 1.0,
        "children": {"read": {"mean": 3.0, "counts": {"3": 1.0}}} if scans else {},
        "latency": [
            {"batch": 1, "repeats": 10, "mean_s": s, "p50_s": s, "p90_s": s, "p95_s": s, "p99_s": s}
        ],
    }  # fmt: skip
