"""Sheets for ``sheets.yaml``: 1 to 256 crops in one query."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from operators.models.module_references import resolve
from postcode.crops import SIDE
from postcode.workload import right_digits, sample_digits

MOST = 256  # crops of a sheet
SAMPLES = 4  # sheets of each size
AT_ONCE = 8  # crops on a core; the memory of larger batches costs more there than they save


class ReadSheet:
    """Reads all crops of a sheet with a reader of crops."""

    def __init__(
        self, reader: str, weights: str, arguments: Mapping[str, Any] | None = None
    ) -> None:
        self._reader = resolve(reader)(**(arguments or {}), weights=weights)

    def load(self, device: str) -> None:
        """Load the reader onto ``device``; one that is no core reads a sheet at once."""
        self._at_once = AT_ONCE if device == "cpu" else MOST
        self._reader.load(device)

    def predict(self, batch: list[Any]) -> list[Any]:
        """The digits of each sheet, or a ``ValueError`` in the place of what is no sheet."""
        return [self._read(sheet) for sheet in batch]

    def _read(self, sheet: Any) -> str | ValueError:
        if not isinstance(sheet, bytes) or not sheet or len(sheet) % SIDE**2:
            return ValueError(f"a sheet is bytes, {SIDE**2} for each crop of {SIDE}x{SIDE} pixels")
        crops = np.frombuffer(sheet, np.uint8).reshape(-1, SIDE, SIDE)
        parts = (crops[at : at + self._at_once] for at in range(0, len(crops), self._at_once))
        return "".join(digit for part in parts for digit in self._reader.predict(list(part)))


class Sheets:
    """Sheets of crops of held-out scans."""

    def queries(self, rng: np.random.Generator) -> Iterator[tuple[bytes, str]]:
        """Sheets of all sizes without end, and the digits on each."""
        while True:
            yield from self.sized_queries(int(rng.integers(1, MOST + 1)), rng)

    def sized_queries(self, size: int, rng: np.random.Generator) -> list[tuple[bytes, str]]:
        """Some sheets of ``size`` crops, and the digits on each."""
        return [_sheet(size, rng) for _ in range(SAMPLES)]

    def score(self, result: Any, truth: str) -> tuple[int, int]:
        """How many digits are right at their place, of how many."""
        return right_digits(result, truth)

    def task_inputs(
        self, task: str, n: int, rng: np.random.Generator
    ) -> tuple[list[bytes], list[str]]:
        """``n`` sheets of one crop, and the digit on each."""
        sheets, truths = zip(*(_sheet(1, rng) for _ in range(n)), strict=True)
        return list(sheets), list(truths)

    def sized_inputs(self, task: str, size: int, rng: np.random.Generator) -> list[bytes]:
        """Some sheets of ``size`` crops."""
        return [sheet for sheet, _ in self.sized_queries(size, rng)]

    def task_score(self, task: str, output: Any, truth: str) -> float:
        """Share of the digits that are right at their place."""
        right, of = right_digits(output, truth)
        return right / of


def _sheet(size: int, rng: np.random.Generator) -> tuple[bytes, str]:
    crops, digits = sample_digits(size, rng)
    return np.stack(crops).tobytes(), "".join(digits)
