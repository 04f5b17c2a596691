"""Cells and columns of tables in plain text; a dash stands for None."""

from collections.abc import Collection, Sequence
from datetime import datetime


def percent(share: float | None, digits: int = 1) -> str:
    """Return a fraction as a percentage."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def decimal(value: float | None, digits: int = 1) -> str:
    """Return a number with ``digits`` decimal places."""
    return "-" if value is None else f"{value:.{digits}f}"


def ms(value: float | None) -> str:
    """Return milliseconds with their unit."""
    return "-" if value is None else f"{value:.1f} ms"


def local_time(at_s: float) -> str:
    """Return epoch seconds as local date and time."""
    return datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def few(names: Sequence[str], most: int = 4) -> str:
    """Return names in a line: the first ``most`` of them, and the number of the others."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def columns(
    rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,), indent: str = ""
) -> str:
    """Return rows of cells as aligned text: the columns ``left`` flush left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = (
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join((indent + row).rstrip() for row in aligned)
