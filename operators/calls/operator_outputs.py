"""The outputs of an operator's call: one for each input."""

from collections.abc import Iterable, Mapping, Set
from typing import Any


def listed(outputs: Iterable[Any]) -> list[Any]:
    """Return what ``predict`` returned as a list.

    Raises ``TypeError`` for a mapping, a set, text, bytes or a table. They may have as many
    elements as the batch has inputs, but their elements are no outputs: {"label": 3} for one input
    is not "label", and a data frame's elements are the names of its columns.
    """
    if type(outputs) is list:
        return outputs
    table = hasattr(outputs, "columns")
    if table or isinstance(outputs, (str, bytes, bytearray, Mapping, Set)):
        raise TypeError(
            f"predict returned {type(outputs).__name__}; return a list of outputs, one for each "
            "input"
        )
    return list(outputs)
