"""Combine the digits of one envelope into its answer."""

from collections.abc import Sequence


def join(outputs: Sequence[str | None]) -> str:
    """The postcode, with "?" for a digit that got no answer in time."""
    return "".join("?" if digit is None else str(digit) for digit in outputs)
