"""Models with seeded latencies and outputs, for tests that run a whole system."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


class Unreadable(ValueError):
    """An error that equals others with the same message, so that runs can be compared."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unreadable) and self.args == other.args

    __hash__ = ValueError.__hash__


class Toy:
    """A model that takes ``base_s`` plus a random time per item; ``output`` computes outputs."""

    def __init__(
        self,
        rng: np.random.Generator,
        output: Callable[[Any, np.random.Generator], Any],
        base_s: float = 0.01,
        load_s: float = 0.1,
    ) -> None:
        self._rng = rng
        self._output = output
        self._base_s = base_s
        self.load_s = load_s

    def latency_s(self, batch: int) -> float:
        return self._base_s * (1.0 + float(self._rng.random(batch).sum()))

    def predict(self, values: Sequence[Any]) -> list[Any]:
        return [self._output(value, self._rng) for value in values]


def fanning(children: Sequence[str], most: int) -> Callable[[Any, np.random.Generator], Any]:
    """Return an output function that draws up to ``most`` items for each child."""

    def output(value: Any, rng: np.random.Generator) -> Mapping[str, list[Any]]:
        counts = rng.integers(0, most + 1, len(children))
        return {
            child: [f"{value}/{i}" for i in range(n)]
            for child, n in zip(children, counts, strict=True)
        }

    return output


def reading(value: Any, rng: np.random.Generator) -> Any:
    """Return an answer or, in 3 % of cases, an error."""
    return Unreadable(f"cannot read {value}") if rng.random() < 0.03 else {"read": value}
