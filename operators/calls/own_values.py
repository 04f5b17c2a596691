"""Values of an operator's calls, apart from the objects that operators hold and change.

Inputs are used again: a failed batch runs once more item by item, and profilers run the same
samples many times. So an operator gets lists and dicts of its own. Arrays come from records, which
are read-only. Outputs that are handed on in memory must not change with the operator's next call.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

_PLAIN = frozenset((type(None), bool, int, float, str, bytes))


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only view of an array."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def immutable(array: np.ndarray) -> np.ndarray:
    """Return a read-only array that nobody changes: the array of a record, a copy of any other."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return array if isinstance(base, bytes) else read_only(array.copy())


def own_values(values: Iterable[Any]) -> list[Any]:
    """Return values for a call, in the form in which they arrive from records."""
    return [own_value(value) for value in values]


def own_value(value: Any, of_array: Callable[[np.ndarray], np.ndarray] = read_only) -> Any:
    """Return a value with copies of its lists and dicts, tuples as lists, and arrays as
    ``of_array`` returns them."""
    if isinstance(value, (list, tuple)):
        if set(map(type, value)) <= _PLAIN:
            return list(value)
        return [own_value(each, of_array) for each in value]
    if isinstance(value, dict):
        return {key: own_value(each, of_array) for key, each in value.items()}
    return of_array(value) if isinstance(value, np.ndarray) else value
