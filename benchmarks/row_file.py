"""A file of rows, with which an interrupted benchmark resumes at the missing rows."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RowT = TypeVar("RowT", bound="DataclassInstance")


class RowFileError(ValueError):
    """Raised for a line that is not a row; the message names it."""


@dataclass(frozen=True, slots=True)
class RowFile(Generic[RowT]):
    """Rows of a dataclass ``kind``, one JSON object a line, in the order in which they ended."""

    path: Path
    kind: type[RowT]

    def read(self) -> list[RowT]:
        """Return all rows, none if there is no file. Raises ``RowFileError``."""
        if not self.path.is_file():
            return []
        return list(self._rows(self.path.read_text(encoding="utf-8").splitlines()))

    def append(self, row: RowT) -> None:
        """Write a row to the end of the file, so that a run that ends now keeps it."""
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(row)) + "\n")

    def _rows(self, lines: list[str]) -> Iterator[RowT]:
        for number, line in enumerate(lines, start=1):
            try:
                found: Any = json.loads(line)
                yield msgspec.convert(found, type=self.kind)
            except ValueError as error:
                raise RowFileError(
                    f"{self.path}, line {number}: not a {self.kind.__name__} of this benchmark "
                    f"({error}); remove the line and run again"
                ) from error
