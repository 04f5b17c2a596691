"""Split the scans into training and held-out ones, once for every model and benchmark."""

from dataclasses import dataclass
from functools import cache

import numpy as np

HELD_OUT = 497  # of 1,797 scans
SPLIT_SEED = 1797


@dataclass(frozen=True, slots=True)
class Scans:
    """Handwritten digits: ``images`` are (n, 8, 8) uint8 of ink, 0..255; ``labels`` 0..9."""

    ids: np.ndarray  # index of each scan in scikit-learn's data
    images: np.ndarray
    labels: np.ndarray


@cache
def training() -> Scans:
    """The scans that models may learn from."""
    return _scans(_order()[HELD_OUT:])


@cache
def held_out() -> Scans:
    """The scans that measure accuracy and make the workload; no model has seen them."""
    return _scans(_order()[:HELD_OUT])


def _order() -> np.ndarray:
    return np.random.default_rng(SPLIT_SEED).permutation(1797)


def _scans(ids: np.ndarray) -> Scans:
    from sklearn.datasets import load_digits  # workers need none of it, and it takes a second

    data = load_digits()
    ink = np.clip(data.images[ids] * 16, 0, 255).astype(np.uint8)
    return Scans(ids, ink, data.target[ids].astype(np.int64))
