"""Trains every model of this project: ``python -m postcode.train``, in this folder.

Takes minutes on two cores, from fixed seeds. Writes ``weights/`` and, beside the weights, the
accuracy that each variant reaches on held-out scans (``weights/accuracy.json``).
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch
import yaml
from operators.models.loading import load_operator
from operators.models.references import resolve
from operators.models.torchvision_model import torchvision_module
from operators.models.transformers_model import transformers_module
from safetensors.torch import save
from schemas.pipeline import Variant
from torch import nn

from postcode import read
from postcode.crops import true_crops
from postcode.envelopes import Box, Envelope, compose
from postcode.export import onnx_model
from postcode.locate import CELL, UNIT_SIDE, inked
from postcode.networks import Convolutional
from postcode.split import training
from postcode.workload import Postcodes

HOME = Path(__file__).resolve().parent.parent
WEIGHTS = HOME / "weights"
RECORD = WEIGHTS / "accuracy.json"
POOL_SEED, NETWORK_SEED, JUDGE_SEED = 11, 12, 13
ENVELOPES = 6000  # composed for training
JUDGED = {"locate": 1000, "read": 4000}  # held-out inputs per task


@dataclass(frozen=True, slots=True)
class Recipe:
    """How long a network learns, and how boldly."""

    epochs: int
    rate: float = 3e-3
    batch: int = 128


Hook = Callable[[list[Any]], np.ndarray]
Loss = Callable[[Any, torch.Tensor], torch.Tensor]


def main() -> None:
    """Trains the variants named on the command line, or all, and prints their accuracies."""
    known = variants()
    parser = argparse.ArgumentParser(prog="python -m postcode.train", description=__doc__)
    parser.add_argument("variant", nargs="*", metavar="task/variant", help="default: all of them")
    chosen = parser.parse_args().variant or list(known)
    unknown = [key for key in chosen if key not in known]
    if unknown:
        parser.error(f"no variant {unknown[0]!r}; there are {', '.join(known)}")
    torch.set_num_threads(2)
    WEIGHTS.mkdir(exist_ok=True)
    for key in chosen:
        train(known[key])
    record({**recorded(), **{key: accuracy(known[key]) for key in chosen}})
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


def train(variant: Variant) -> None:
    """Trains the variant and writes its weights; a variant without weights needs nothing."""
    if variant.key not in TRAINERS:
        return
    began = time.perf_counter()
    torch.manual_seed(NETWORK_SEED)
    TRAINERS[variant.key](variant)
    size = Path(variant.arguments["weights"]).stat().st_size
    print(f"{variant.key}: {time.perf_counter() - began:.0f} s, {size / 1000:.0f} kB")


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


@cache
def pool() -> tuple[Envelope, ...]:
    """The envelopes that every model learns from."""
    rng = np.random.default_rng(POOL_SEED)
    return tuple(compose(training(), rng) for _ in range(ENVELOPES))


@cache
def crop_pool() -> tuple[list[np.ndarray], np.ndarray]:
    """The crops of the pool's digits, and the digits."""
    rng = np.random.default_rng(POOL_SEED)
    crops = [crop for envelope in pool() for crop in true_crops(envelope, rng)]
    return crops, np.array([int(digit) for envelope in pool() for digit in envelope.postcode])


def train_forest(rounds: int, leaves: int) -> Callable[[Variant], None]:
    """A trainer of gradient-boosted trees on the hook's features."""

    def trainer(variant: Variant) -> None:
        crops, digits = crop_pool()
        data = lightgbm.Dataset(resolve(variant.arguments["before"])(crops), digits)
        settings = {
            "objective": "multiclass",
            "num_class": 10,
            "num_leaves": leaves,
            "learning_rate": 0.2,
            "num_threads": 2,
            "deterministic": True,
            "force_row_wise": True,
            "seed": NETWORK_SEED,
            "verbose": -1,
        }
        lightgbm.train(settings, data, rounds).save_model(variant.arguments["weights"])

    return trainer


def train_reader(
    build: Callable[[Variant], nn.Module], recipe: Recipe
) -> Callable[[Variant], None]:
    """A trainer of a network that names crops."""

    def trainer(variant: Variant) -> None:
        crops, digits = crop_pool()
        network = build(variant)
        hook = resolve(variant.arguments["before"])
        loss = nn.CrossEntropyLoss(label_smoothing=0.05)
        fit(
            network,
            lambda chosen: hook([crops[i] for i in chosen]),
            torch.from_numpy(digits),
            lambda out, truth: loss(getattr(out, "logits", out), truth),
            recipe,
            variant.key,
        )
        keep(network, variant)

    return trainer


def train_locator(recipe: Recipe) -> Callable[[Variant], None]:
    """A trainer of a network that maps digits."""

    def trainer(variant: Variant) -> None:
        images = inked(np.stack([envelope.image for envelope in pool()]))
        targets = np.stack([target(envelope.boxes, *images.shape[2:]) for envelope in pool()])
        sizes = {name: variant.arguments[name] for name in ("width", "depth")}
        network = resolve("postcode.networks:DigitMap")(**sizes)
        fit(
            network,
            lambda chosen: images[chosen],
            torch.from_numpy(targets),
            map_loss,
            recipe,
            variant.key,
        )
        keep(network, variant)

    return trainer


def target(boxes: tuple[Box, ...], height: int, width: int) -> np.ndarray:
    """The maps (4, height / CELL, width / CELL) that a perfect ``DigitMap`` would draw."""
    rows, columns = np.mgrid[: height // CELL, : width // CELL].astype(np.float32)
    maps = np.zeros((4, *rows.shape), dtype=np.float32)
    for box in boxes:
        right = (box.x + 0.5) / CELL - 0.5 - columns
        down = (box.y + 0.5) / CELL - 0.5 - rows
        heat = np.exp(-(right**2 + down**2) / 2)
        side = np.full_like(heat, np.log(box.side / UNIT_SIDE))
        nearer = heat > maps[0]
        maps[:, nearer] = np.stack([heat, right, down, side])[:, nearer]
    return maps


def map_loss(maps: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the heat, and the boxes' error where there is some."""
    heat = nn.functional.binary_cross_entropy_with_logits(maps[:, 0], truth[:, 0])
    wrong = (maps[:, 1:] - truth[:, 1:]).abs().sum(dim=1)
    return 4 * heat + 0.3 * (wrong * truth[:, 0]).sum() / truth[:, 0].sum()


def fit(
    network: nn.Module,
    inputs: Callable[[np.ndarray], np.ndarray],
    truth: torch.Tensor,
    loss: Loss,
    recipe: Recipe,
    name: str,
) -> None:
    """Trains the network in place over shuffled batches, on one cycle of the learning rate."""
    optimiser = torch.optim.AdamW(network.parameters(), recipe.rate, weight_decay=0.02)
    batches = len(truth) // recipe.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.rate, total_steps=recipe.epochs * batches
    )
    network.train()
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(truth))[: batches * recipe.batch].reshape(batches, -1)
        total = 0.0
        for chosen in order:
            value = loss(network(torch.from_numpy(inputs(chosen.numpy()))), truth[chosen])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            schedule.step()
            total += value.item()
        print(
            f"{name}: epoch {epoch + 1} of {recipe.epochs}, loss {total / batches:.4f}", flush=True
        )
    network.eval()


def keep(network: nn.Module, variant: Variant) -> None:
    """Writes the weights, in half precision as safetensors, or as ONNX where that is wanted."""
    path = Path(variant.arguments["weights"])
    if path.suffix == ".onnx":
        path.write_bytes(onnx_model(network))
        return
    state = network.state_dict()
    half = {k: v.half() if v.is_floating_point() else v for k, v in state.items()}
    path.write_bytes(save({k: v.contiguous() for k, v in half.items()}))


def torch_network(variant: Variant) -> nn.Module:
    """The network of a ``TorchModule`` variant."""
    return resolve(variant.arguments["module"])(**variant.arguments["module_arguments"])


def torchvision_network(variant: Variant) -> nn.Module:
    """The network of a ``TorchvisionModel`` variant."""
    return torchvision_module(variant.arguments["architecture"], variant.arguments["arguments"])


def transformers_network(variant: Variant) -> nn.Module:
    """The network of a ``TransformersModel`` variant."""
    return transformers_module(variant.arguments["architecture"], variant.arguments["config"])


TRAINERS: dict[str, Callable[[Variant], None]] = {
    "locate/net": train_locator(Recipe(epochs=8, rate=6e-3, batch=64)),
    "locate/deep": train_locator(Recipe(epochs=10, rate=2e-3)),
    "read/forest": train_forest(rounds=12, leaves=15),
    "read/mlp": train_reader(torch_network, Recipe(epochs=8)),
    "read/cnn-onnx": train_reader(lambda _: Convolutional(16, 1), Recipe(epochs=5)),
    "read/vit": train_reader(transformers_network, Recipe(epochs=12, rate=1.5e-3)),
    "read/mobilenet": train_reader(torchvision_network, Recipe(epochs=6, rate=3e-3)),
    "read/cnn": train_reader(torch_network, Recipe(epochs=6, rate=3e-3)),
}


if __name__ == "__main__":
    main()
