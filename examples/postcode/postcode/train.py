"""Trains every model of this project: ``python -m postcode.train``, in the folder above.

Takes minutes on two cores, each with a variant of its own, from fixed seeds. Writes ``weights/``
and, beside the weights, the accuracy that each variant reaches on held-out scans
(``weights/accuracy.json``).
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from operators.models.loading import load_operator
from postcode.learning import NETWORK_SEED, TRAINERS
from postcode.workload import Postcodes
from schemas.pipeline import Variant

HOME = Path(__file__).resolve().parent.parent
WEIGHTS = HOME / "weights"
RECORD = WEIGHTS / "accuracy.json"
JUDGE_SEED = 13
JUDGED = {"locate": 1000, "read": 4000}  # held-out inputs per task


def main() -> None:
    """Trains the variants named on the command line, or all, and prints their accuracies."""
    known = variants()
    parser = argparse.ArgumentParser(prog="python -m postcode.train", description=__doc__)
    parser.add_argument("variant", nargs="*", metavar="task/variant", help="default: all of them")
    parser.add_argument("--processes", type=int, default=2, help="fewer on a busy machine")
    asked = parser.parse_args()
    chosen = asked.variant or list(known)
    unknown = [key for key in chosen if key not in known]
    if unknown:
        parser.error(f"no variant {unknown[0]!r}; there are {', '.join(known)}")
    WEIGHTS.mkdir(exist_ok=True)
    # Such small networks gain nothing from a second thread, so each core has its own. The variants
    # that take longest stand last in the file and are begun first.
    with ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool:
        found = dict(zip(reversed(chosen), pool.map(trained, reversed(chosen)), strict=True))
    record({**recorded(), **found})
    for key, value in recorded().items():
        print(f"{key:20} {value:.4f}")


def variants() -> dict[str, Variant]:
    """The variants of ``pipeline.yaml`` by "task/variant", with their weights' full paths."""
    tasks = yaml.safe_load((HOME / "pipeline.yaml").read_text())["tasks"]
    found = {}
    for task, body in tasks.items():
        for name, spec in body["variants"].items():
            arguments = dict(spec.get("arguments", {}))
            if "weights" in arguments:
                arguments["weights"] = str(HOME / arguments["weights"])
            variant = Variant(task=task, name=name, operator=spec["operator"], arguments=arguments)
            found[variant.key] = variant
    return found


def trained(key: str) -> float:
    """Trains the variant on one core; its accuracy."""
    torch.set_num_threads(1)
    variant = variants()[key]
    train(variant)
    return accuracy(variant)


def train(variant: Variant) -> None:
    """Trains the variant and writes its weights; a variant without weights needs nothing."""
    if variant.key not in TRAINERS:
        return
    began = time.perf_counter()
    torch.manual_seed(NETWORK_SEED)
    TRAINERS[variant.key](variant)
    size = Path(variant.arguments["weights"]).stat().st_size
    print(f"{variant.key}: {time.perf_counter() - began:.0f} s, {size / 1000:.0f} kB", flush=True)


def accuracy(variant: Variant) -> float:
    """The variant's accuracy on held-out scans, as its operator reaches it with what is on disk."""
    return measured(variant, JUDGED[variant.task])


def measured(variant: Variant, n: int) -> float:
    """The variant's mean score over ``n`` held-out inputs, always the same ones."""
    operator: Any = load_operator(variant)
    operator.load("cpu")
    workload = Postcodes()
    inputs, truths = workload.task_inputs(variant.task, n, np.random.default_rng(JUDGE_SEED))
    outputs = [o for i in range(0, n, 32) for o in operator.predict(inputs[i : i + 32])]
    scores = [
        workload.task_score(variant.task, *pair) for pair in zip(outputs, truths, strict=True)
    ]
    return round(float(np.mean(scores)), 4)


def recorded() -> dict[str, float]:
    """The accuracies that were measured when the weights on disk were trained."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def record(accuracies: dict[str, float]) -> None:
    """Keeps the accuracies beside the weights, in the order of the pipeline file."""
    ordered = {key: accuracies[key] for key in variants() if key in accuracies}
    RECORD.write_text(json.dumps(ordered, indent=2) + "\n")


if __name__ == "__main__":
    main()
