"""Operators for pipelines of tests and benchmarks: sums of squares.

They are cheap, and certain inputs make them fail.
"""

import hashlib
from typing import Any

import numpy as np

BURN_MS = 2.0
OVERSIZED = 9 * 1024 * 1024  # bytes; a record holds 8 MiB
LONG = 500_000  # elements: 4 MB in Avro, three times as much in JSON
_ROUNDS_PER_MS = 1200  # of PBKDF2 on the slowest machine seen; burns CPU instead of sleeping
# A pipeline file without a name: three workers; every query has items for both workers of "square".
PIPELINE: dict[str, Any] = {
    "slo": "1s",
    "input": "raw",
    "results": "avro",
    "combine": f"{__name__}:total",
    "grace": "500ms",
    "egress_partitions": 2,
    "tasks": {
        "split": {
            "slots": 4,
            "children": ["square"],
            "variants": {"plain": {"operator": f"{__name__}:Split", "batch": 8, "replicas": 1}},
        },
        "square": {
            "slots": 4,
            "variants": {"plain": {"operator": f"{__name__}:Square", "batch": 8, "replicas": 2}},
        },
    },
    "cluster": {"devices": {"cpu": 3}, "ingress": 1, "egress": 1},
}


class Split:
    """Return items n, n + 1, n + 2 for a number n; certain words produce faulty outputs."""

    def load(self, device: str) -> None:
        """Nothing to load."""

    def predict(self, batch: list[bytes]) -> list[Any]:
        if b"raise" in batch:
            raise RuntimeError("told to raise")
        if b"short" in batch:
            return []
        return [self._items(value) for value in batch]

    def _items(self, value: bytes) -> Any:
        if value == b"nonsense":
            return object()
        if value == b"none":
            return []
        if value == b"oversized item":
            return [bytes(OVERSIZED)]
        first = value.decode()
        return [int(first) + i for i in range(3)] if first[:9].isdecimal() else [1, first, 3]


class Square:
    """Return the square of each item, after ``ms`` of computing; an error for a word."""

    def __init__(self, ms: float = BURN_MS) -> None:
        self._rounds = max(1, int(ms * _ROUNDS_PER_MS))

    def load(self, device: str) -> None:
        """Nothing to load."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [self._square(value) for value in batch]

    def _square(self, value: Any) -> Any:
        hashlib.pbkdf2_hmac("sha256", b"some", b"work", self._rounds)
        if value == "oversized output":
            return bytes(OVERSIZED)
        if value == "long array":
            return np.linspace(0.0, 1.0, LONG)
        if isinstance(value, str):
            return ValueError(f"{value!r} is no number")
        return value * value


def total(squares: list[Any]) -> Any:
    """Return the first array, if any, else the sum of the results that are not None."""
    arrays = [square for square in squares if isinstance(square, np.ndarray)]
    return arrays[0] if arrays else sum(square for square in squares if square is not None)


def right(first: int) -> int:
    """Return the pipeline's answer to the number ``first``."""
    return sum((first + i) ** 2 for i in range(3))
