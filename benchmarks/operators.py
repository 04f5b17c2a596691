"""No-op operators, to measure the overhead around them."""

from typing import Any


class Pass:
    """Pass every item on to the only child."""

    def load(self, device: str) -> None:
        """Nothing to load."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return [[value] for value in batch]


class Echo:
    """Return the inputs."""

    def load(self, device: str) -> None:
        """Nothing to load."""

    def predict(self, batch: list[Any]) -> list[Any]:
        return batch
