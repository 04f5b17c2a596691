"""Read a digit: the hooks before and after the models that classify crops."""

from typing import Any

import numpy as np

from postcode.crops import SIDE


def pixels(batch: list[Any]) -> np.ndarray:
    """Crops as (n, 1, 16, 16) float32, 0..1; raises ``ValueError`` for what is no crop."""
    return _checked(batch)[:, None].astype(np.float32) / 255


def coloured(batch: list[Any]) -> np.ndarray:
    """Crops as torchvision's models want them: (n, 3, 32, 32) float32, each pixel doubled."""
    large = pixels(batch).repeat(2, axis=2).repeat(2, axis=3)
    return large.repeat(3, axis=1)


def features(batch: list[Any]) -> np.ndarray:
    """Crops as rows of 64 means, one for each 2 x 2 pixels."""
    blocks = _checked(batch).reshape(-1, SIDE // 2, 2, SIDE // 2, 2)
    return blocks.mean(axis=(2, 4)).reshape(-1, (SIDE // 2) ** 2)


def digits(scores: np.ndarray) -> list[str]:
    """The best of ten scores for each crop, as a character."""
    return [str(best) for best in scores.argmax(axis=1)]


def _checked(batch: list[Any]) -> np.ndarray:
    for value in batch:
        if not isinstance(value, np.ndarray) or value.shape != (SIDE, SIDE):
            found = value.shape if isinstance(value, np.ndarray) else type(value).__name__
            raise ValueError(f"a crop is an array of {SIDE}x{SIDE} pixels, not {found}")
    return np.stack(batch)
