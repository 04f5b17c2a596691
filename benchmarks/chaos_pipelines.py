"""The pipelines that faults are injected into: one whose items wait in slots, one with dispatchers.

Both have the tasks of ``squares`` with a second variant, and three policies that faults switch
between. The plans of ``loki`` change with its observations. In the pipeline with dispatchers, the
inner task has its own dispatcher under every policy, and the first task has ingress's under
`kairos`.
"""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.squares import BURN_MS, PIPELINE

PROFILE = "squares.profile.json"
ITEM_S = {"plain": 1.5 * BURN_MS / 1e3, "quick": 0.5 * BURN_MS / 1e3}  # roles share the cores
SPLIT_S = 0.001
ACCURACY = {"plain": 1.0, "quick": 0.8}
BATCHES = (1, 2, 4, 8)
SLOTS, DISPATCHED = "slots", "dispatched"
PIPELINES = (SLOTS, DISPATCHED)
LOKI = {"kind": "loki", "interval": "5s"}
SWAPPED = {"kind": "static", "replicas": {"split/plain": 2, "square/plain": 1}}


def description(name: str, slo_s: float) -> dict[str, Any]:
    """Return the pipeline file, without a name."""
    found = copy.deepcopy(PIPELINE)
    square = found["tasks"]["square"]
    operator = square["variants"]["plain"]["operator"]
    square["variants"]["quick"] = {
        "operator": operator, "arguments": {"ms": BURN_MS / 3}, "batch": 8,
    }  # fmt: skip
    policies = {"loki": LOKI, "swapped": SWAPPED}
    if name == DISPATCHED:
        policies = {"loki": LOKI, "kairos": {"kind": "kairos"}}
        square["dispatch"] = "kairos"
        for variant in square["variants"].values():
            del variant["batch"]  # a dispatcher sends items one by one
    return found | {
        "slo": f"{slo_s}s",
        "policy": "static",
        "policies": policies,
        "profiles": [PROFILE],
    }


def write_profile(folder: Path) -> None:
    """Write the pipelines' profile, whose latencies are guesses on the long side."""
    entries = [
        _entry("split", "plain", SPLIT_S, 0.0, {"square": {"mean": 3.0, "counts": {"3": 1.0}}}),
        *(_entry("square", variant, 0.001, s, {}) for variant, s in ITEM_S.items()),
    ]
    document = {"pipeline": "squares", "provenance": {}, "entries": entries}
    (folder / PROFILE).write_text(json.dumps(document), encoding="utf-8")


def _entry(
    task: str, variant: str, batch_s: float, item_s: float, children: Mapping[str, Any]
) -> dict[str, Any]:
    operator = PIPELINE["tasks"][task]["variants"]["plain"]["operator"]
    latency = []
    for batch in BATCHES:
        took_s = batch_s + batch * item_s
        quantiles = dict.fromkeys(("mean_s", "p50_s", "p90_s", "p95_s", "p99_s"), took_s)
        latency.append({"batch": batch, "repeats": 1, **quantiles})
    return {
        "task": task, "variant": variant, "device": "cpu", "operator": operator,
        "weights_sha256": "", "load_s": 0.0, "memory_bytes": 0, "accuracy": ACCURACY[variant],
        "children": children, "latency": latency,
    }  # fmt: skip
