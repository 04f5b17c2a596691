"""Read the tables of a paper's data, and run the command that converts them to our formats."""

import argparse
import csv
from collections.abc import Callable
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


def write_from(document: str, write: Callable[[Path, Path], list[Path]]) -> None:
    """Run the command DATA_DIR OUT_DIR: print the written paths, or exit with 2 and a message."""
    parser = argparse.ArgumentParser(description=document.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    options = parser.parse_args()
    try:
        for path in write(options.data, options.out):
            print(path)
    except DataError as error:
        parser.exit(2, f"{error}\n")
