"""Operators that do nothing, to measure what everything around them costs."""

from typing import Any


class Pass:
    """Hands every item on to the only child."""

    def load(self, device: str) -> None:
        """Nothing to load."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [[value] for value in batch]


class Echo:
    """Answers with what came in."""

    def load(self, device: str) -> None:
        """Nothing to load."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return batch
