"""Operators and workload of the words pipeline."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

LETTERS = list("abcdefgh")


class _Plain:
    def load(self, device: str) -> None:
        """Load nothing."""


class Split(_Plain):
    """Split a line of bytes into its words."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [value.decode().split() for value in batch]


class Careful(_Plain):
    """Return each word in capitals."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [word.upper() for word in batch]


class Hasty(_Plain):
    """Return only the first letter, which is wrong for longer words."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [word.capitalize() for word in batch]


def join(outputs: Sequence[str | None]) -> str:
    return " ".join("?" if word is None else word for word in outputs)


class Words:
    """Generate lines of three words, some of one letter."""

    def queries(self, rng: np.random.Generator) -> Iterator[tuple[bytes, str]]:
        while True:
            line = " ".join("".join(rng.choice(LETTERS, rng.integers(1, 4))) for _ in range(3))
            yield line.encode(), line.upper()

    def score(self, result: Any, truth: str) -> tuple[int, int]:
        wanted = truth.split()
        found = result.split() if isinstance(result, str) else []
        return sum(a == b for a, b in zip(found, wanted, strict=False)), len(wanted)

    def task_inputs(
        self, task: str, n: int, rng: np.random.Generator
    ) -> tuple[list[Any], list[Any]]:
        raise NotImplementedError("the words pipeline is not profiled")

    def task_score(self, task: str, output: Any, truth: Any) -> float:
        return float(output == truth)
