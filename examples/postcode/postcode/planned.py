"""Operators with knobs, for ``planned.yaml``: scan, locate with a side, read with votes."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from operators.models.module_references import resolve
from postcode.crops import SIDE
from postcode.envelopes import HEIGHT, WIDTH, png
from postcode.locate import opened

MEDIAN = 3  # pixels a side
# Shifts of a crop by a pixel, the crop itself first: votes are the first so many of them.
SHIFTS = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (-1, -1), (1, -1), (-1, 1))


class Scan:
    """Shrinks an envelope by ``scale`` and filters it: ``denoise`` is none or median."""

    def __init__(self, scale: float, denoise: str) -> None:
        if not 0 < scale <= 1:
            raise ValueError(f"scale is {scale:g}; it must be above 0 and at most 1")
        if denoise not in ("none", "median"):
            raise ValueError(f"denoise is {denoise!r}; it can be none or median")
        self._size = max(1, round(WIDTH * scale)), max(1, round(HEIGHT * scale))
        self._median = denoise == "median"

    def load(self, device: str) -> None:
        """Nothing to load; Pillow runs on the CPU, whatever the device."""

    def predict(self, batch: list[Any]) -> list[Any]:
        """One PNG for the locator for each payload, or why a payload is no envelope."""
        return [self._scanned(payload) for payload in batch]

    def _scanned(self, payload: Any) -> list[bytes] | ValueError:
        image = opened(payload)
        if isinstance(image, ValueError):
            return image
        if self._median:
            image = image.filter(ImageFilter.MedianFilter(MEDIAN))
        if image.size != self._size:
            image = image.resize(self._size, Image.Resampling.BOX)
        return [png(np.asarray(image))]


class Locate:
    """A locator of ``postcode.locate`` on scans of any size; crops of ``side`` pixels."""

    def __init__(
        self, locator: str, side: int, weights: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        given = {"weights": weights} if weights else {}
        self._locator = resolve(locator)(**(arguments or {}), **given)
        self._side = side

    def load(self, device: str) -> None:
        """Loads the locator onto ``device``."""
        self._locator.load(device)

    def predict(self, batch: list[Any]) -> list[Any]:
        """Crops for each scan, or a ``ValueError`` in the place of one that is no image."""
        found = self._locator.predict([enlarged(payload) for payload in batch])
        return [
            each if isinstance(each, ValueError) else [resized(crop, self._side) for crop in each]
            for each in found
        ]


class Read:
    """A reader of crops of any side: the mean scores of ``votes`` looks at shifts of a crop."""

    def __init__(
        self, reader: str, votes: int, weights: str, arguments: Mapping[str, Any] | None = None
    ) -> None:
        if not 1 <= votes <= len(SHIFTS):
            raise ValueError(f"votes is {votes}; it must be 1 to {len(SHIFTS)}")
        self._reader = resolve(reader)(
            **(arguments or {}), weights=weights, after="postcode.planned:scores"
        )
        self._votes = votes

    def load(self, device: str) -> None:
        """Loads the reader onto ``device``."""
        self._reader.load(device)

    def predict(self, batch: list[Any]) -> list[Any]:
        """The digit of each crop, as a character."""
        crops = [resized(crop, SIDE) for crop in batch]
        looks = [np.roll(crop, shift, axis=(0, 1)) for shift in SHIFTS[: self._votes]
                 for crop in crops]  # fmt: skip
        found = np.stack(self._reader.predict(looks)).reshape(self._votes, len(crops), -1)
        return [str(best) for best in found.mean(axis=0).argmax(axis=1)]


def enlarged(payload: Any) -> Any:
    """A scan in an envelope's size, as PNG; what is no image is left to the locator to refuse."""
    try:
        image = Image.open(io.BytesIO(payload), formats=("PNG",)).convert("L")
    except (OSError, SyntaxError, TypeError, ValueError):
        return payload
    if image.size == (WIDTH, HEIGHT):
        return payload
    return png(np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)))


def resized(crop: np.ndarray, side: int) -> np.ndarray:
    """A crop of ``side`` pixels a side."""
    if crop.shape == (side, side):
        return crop
    return np.asarray(Image.fromarray(crop).resize((side, side), Image.Resampling.BILINEAR))


def scores(found: np.ndarray) -> list[np.ndarray]:
    """Scores as probabilities, one row a crop; those of networks are logits."""
    found = np.asarray(found, dtype=np.float64)
    if (found < 0).any() or (found.sum(axis=1) > 1.001).any():
        found = np.exp(found - found.max(axis=1, keepdims=True))
    return list(found / found.sum(axis=1, keepdims=True))
