"""What an operator's call may return in place of a list."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from operators.calls.operator_outputs import listed


@pytest.mark.parametrize(
    ("returned", "outputs"),
    [([1, 2], [1, 2]), ((1, 2), [1, 2]), (map(str, (1, 2)), ["1", "2"]), (np.array([1]), [1])],
)
def test_outputs_in_order_become_a_list(returned: Iterable[Any], outputs: list[Any]) -> None:
    assert listed(returned) == outputs


class DataFrame:
    """A table whose elements are the names of its columns, as pandas' are."""

    columns = ("label",)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


@pytest.mark.parametrize(
    "returned", [{"a": 1}, {1}, frozenset((1,)), "a", b"a", bytearray(b"a"), DataFrame()]
)
def test_elements_that_are_no_outputs_are_refused(returned: Iterable[Any]) -> None:
    with pytest.raises(TypeError, match=f"returned {type(returned).__name__}; return a list"):
        listed(returned)
