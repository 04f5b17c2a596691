"""Values apart from the objects that operators hold and change."""

from typing import Any

import numpy as np
import pytest

from operators.calls.own_values import immutable, own_value
from schemas.codec.values import pack, unpack


def test_lists_and_dicts_are_copies_at_every_level() -> None:
    value: dict[str, Any] = {"a": [1, {"b": [2.5, "c"]}], "d": None}
    own = own_value(value)
    assert own == value
    own["a"][1]["b"].append(3)
    own["e"] = 1
    assert value == {"a": [1, {"b": [2.5, "c"]}], "d": None}


def test_tuples_are_lists_as_after_a_record() -> None:
    assert own_value((1, ("a", [2]))) == [1, ["a", [2]]]


def test_arrays_are_read_only_views() -> None:
    array = np.zeros(3)
    own = own_value([array])[0]
    with pytest.raises(ValueError, match="read-only"):
        own += 1
    assert array.flags.writeable
    assert np.shares_memory(own, array)


def test_an_array_that_its_owner_changes_is_kept_as_it_was() -> None:
    buffer = np.zeros(3)
    hidden = buffer.view()
    hidden.flags.writeable = False
    found = own_value({"a": buffer[1:], "b": hidden}, immutable)
    buffer += 1
    assert (found["a"].tolist(), found["b"].tolist()) == ([0.0, 0.0], [0.0, 0.0, 0.0])
    assert not found["a"].flags.writeable


def test_the_array_of_a_record_is_kept_without_a_copy() -> None:
    _, row = pack(np.arange(6.0).reshape(2, 3))
    array = unpack({**row, "data": bytes(row["data"])})
    assert isinstance(array, np.ndarray)
    assert np.shares_memory(own_value(array[1:], immutable), array)
