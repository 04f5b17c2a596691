"""Read the tables of a paper's data."""

import csv
from pathlib import Path


class DataError(ValueError):
    """Raised for an incomplete data directory; the message names what is missing."""


def table(path: Path, paper: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file. Raises ``DataError`` if it cannot be read."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))
    except OSError as error:
        raise unreadable(path, error, paper) from error


def unreadable(path: Path, error: OSError, paper: str) -> DataError:
    """Return the error for a file that cannot be read."""
    return DataError(
        f"{path} cannot be read ({error.strerror}); DATA_DIR is the folder of the {paper} data"
    )
