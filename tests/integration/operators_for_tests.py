"""Operators of the pipelines that tests run for real: cheap, and wrong when the input says so."""

import hashlib
from typing import Any

BURN_MS = 2.0
_ROUNDS_PER_MS = 1200  # of PBKDF2 on the slowest machine seen; time on a CPU, not asleep


class Split:
    """Three items n, n + 1, n + 2 for an input that is a number n; trouble for other words."""

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
        first = value.decode()
        return [int(first) + i for i in range(3)] if first.isdecimal() else [1, first, 3]


class Square:
    """The square of each item, after ``ms`` of computing; an error for an item that is a word."""

    def __init__(self, ms: float = BURN_MS) -> None:
        self._rounds = max(1, int(ms * _ROUNDS_PER_MS))

    def load(self, device: str) -> None:
        """Nothing to load."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [self._square(value) for value in batch]

    def _square(self, value: Any) -> Any:
        hashlib.pbkdf2_hmac("sha256", b"some", b"work", self._rounds)
        if isinstance(value, str):
            return ValueError(f"{value!r} is no number")
        return value * value


def total(squares: list[int | None]) -> int:
    """The sum of what is there."""
    return sum(square for square in squares if square is not None)


def right(first: int) -> int:
    """What the pipeline answers to the number ``first``."""
    return sum((first + i) ** 2 for i in range(3))
