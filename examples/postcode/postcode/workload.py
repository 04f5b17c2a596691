"""Sample envelopes with the truth: what load, demo and profile send and how they judge."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from postcode.crops import JITTER, true_crops
from postcode.envelopes import DIGITS, Envelope, compose, png
from postcode.split import held_out

ALIKE = 0.35  # below this correlation a crop shows no digit at all


class Postcodes:
    """Envelopes made of held-out scans only."""

    def queries(self, rng: np.random.Generator) -> Iterator[tuple[bytes, str]]:
        """Envelopes without end: PNG bytes and the postcode on it."""
        while True:
            envelope = compose(held_out(), rng)
            yield png(self.photographed(envelope.image, rng)), envelope.postcode

    def photographed(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the image as this camera takes it."""
        return image

    def score(self, result: Any, truth: str) -> tuple[int, int]:
        """How many digits are right at their place, of how many."""
        return right_digits(result, truth)

    def task_inputs(
        self, task: str, n: int, rng: np.random.Generator
    ) -> tuple[list[Any], list[Any]]:
        """``n`` inputs of the task, with truths for ``task_score``.

        For locate, envelopes with the (crop, digit) of each place; for read, crops with digits.
        """
        return {"locate": _locating, "read": sample_digits}[task](n, rng)

    def task_score(self, task: str, output: Any, truth: Any) -> float:
        """Share of the digits that ``output`` has right at their place, 0..1."""
        if task == "read":
            return float(output == truth)
        return _found(output, truth) / len(truth) if isinstance(output, list) else 0.0


class Noisy(Postcodes):
    """The same envelopes with the grain of a camera in bad light."""

    grain = 45.0  # standard deviation, of 255

    def photographed(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the image with grain."""
        grainy = image + rng.normal(0.0, self.grain, image.shape)
        return np.clip(grainy, 0, 255).astype(np.uint8)


class Dim(Postcodes):
    """The same envelopes with a quarter of the contrast."""

    def photographed(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the image with less contrast."""
        paper = float(np.median(image))
        return np.clip(paper + (image - paper) / 4, 0, 255).astype(np.uint8)


class Digits(Postcodes):
    """Crops of single digits, for a pipeline that only reads."""

    def queries(self, rng: np.random.Generator) -> Iterator[tuple[Any, str]]:
        """Crops without end, as a locator makes them, and the digit on each."""
        while True:
            yield from zip(*sample_digits(DIGITS, rng), strict=True)


def right_digits(result: Any, truth: str) -> tuple[int, int]:
    """Return how many digits are right at their place, of how many."""
    if not isinstance(result, str):
        return 0, len(truth)
    return sum(a == b for a, b in zip(result, truth, strict=False)), len(truth)


def _locating(n: int, rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    envelopes = [compose(held_out(), rng) for _ in range(n)]
    truths = [_digits(envelope, rng, jitter=0.0) for envelope in envelopes]
    return [png(envelope.image) for envelope in envelopes], truths


def sample_digits(n: int, rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    """Return ``n`` crops as a locator makes them, and the digit on each."""
    envelopes = [compose(held_out(), rng) for _ in range(-(-n // DIGITS))]
    pairs = [pair for envelope in envelopes for pair in _digits(envelope, rng, JITTER)][:n]
    return [crop for crop, _ in pairs], [digit for _, digit in pairs]


def _digits(
    envelope: Envelope, rng: np.random.Generator, jitter: float
) -> list[tuple[np.ndarray, str]]:
    return list(zip(true_crops(envelope, rng, jitter), envelope.postcode, strict=True))


def _found(crops: list[np.ndarray], truths: list[tuple[np.ndarray, str]]) -> int:
    """Count the crops that look most like a crop of their place's digit."""
    found = 0
    for crop, (_, digit) in zip(crops, truths, strict=False):
        alike = [_likeness(crop, true) for true, _ in truths]
        best = int(np.argmax(alike))
        found += truths[best][1] == digit and alike[best] >= ALIKE
    return found


def _likeness(one: np.ndarray, other: np.ndarray) -> float:
    """Correlation of two crops, -1..1; 0 with a crop that shows nothing."""
    if one.min() == one.max() or other.min() == other.max():
        return 0.0
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])
