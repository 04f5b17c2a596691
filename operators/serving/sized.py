"""An item with a size, in what an operator returns for a child task."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sized:
    """An item for a child task and its size: samples to rank, tokens, pixels.

    Raises ``ValueError`` for a size that is no whole number from 1.
    """

    value: Any
    size: int

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise ValueError(
                f"Sized got the size {self.size!r}; give a whole number from 1, as in int(size)"
            )
