"""How the digits of one envelope become its answer."""

from collections.abc import Sequence


def join(outputs: Sequence[str | None]) -> str:
    """The postcode, with "?" for a digit that got no answer in time."""
    return "".join("?" if digit is None else str(digit) for digit in outputs)
