"""Train the models of this project: recipes and trainers, one for each kind of model."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from operators.models.module_references import resolve
from operators.models.torchvision_model import torchvision_module
from operators.models.transformers_model import transformers_module
from postcode.crops import JITTER, true_crops
from postcode.envelopes import Box, Envelope, compose
from postcode.export import onnx_model
from postcode.locate import CELL, UNIT_SIDE, inked
from postcode.networks import Perceptron
from postcode.split import training
from schemas.pipeline import Variant

POOL_SEED, NETWORK_SEED = 11, 12
ENVELOPES = 5000  # composed for training

Trainer = Callable[[Variant], None]
Loss = Callable[[Any, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The length of a training and its learning rate."""

    epochs: int
    rate: float = 3e-3
    batch: int = 128


@cache
def pool() -> tuple[Envelope, ...]:
    """The envelopes that every model learns from."""
    rng = np.random.default_rng(POOL_SEED)
    return tuple(compose(training(), rng) for _ in range(ENVELOPES))


@cache
def crop_pool() -> tuple[list[np.ndarray], np.ndarray]:
    """The crops of the pool's digits, and the digits."""
    rng = np.random.default_rng(POOL_SEED)
    crops = [crop for envelope in pool() for crop in true_crops(envelope, rng, JITTER)]
    return crops, np.array([int(digit) for envelope in pool() for digit in envelope.postcode])


def train_forest(rounds: int, leaves: int) -> Trainer:
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


def train_reader(build: Callable[[Variant], nn.Module], recipe: Recipe) -> Trainer:
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


def train_locator(recipe: Recipe) -> Trainer:
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


TRAINERS: dict[str, Trainer] = {
    "locate/net": train_locator(Recipe(epochs=8, rate=8e-3, batch=64)),
    "locate/deep": train_locator(Recipe(epochs=4, rate=3e-3, batch=64)),
    "read/mlp": train_reader(lambda _: Perceptron(hidden=12), Recipe(epochs=8)),
    "read/forest": train_forest(rounds=40, leaves=15),
    "read/cnn": train_reader(torch_network, Recipe(epochs=4)),
    "read/vit": train_reader(transformers_network, Recipe(epochs=9, rate=2e-3)),
    "read/mobilenet": train_reader(torchvision_network, Recipe(epochs=4)),
    "read/committee": train_reader(torch_network, Recipe(epochs=6)),
}
