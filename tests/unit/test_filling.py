"""A record that is filled quickly is in all else the dataclass that it would have been."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from typing import Any

import pytest

from schemas import effects, records
from schemas.filling import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """A dataclass as Python makes it."""

    name: str
    count: int = 3


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Quick:
    """The same, filled quickly."""

    name: str
    count: int = 3


RECORDS = [
    made
    for module in (records, effects)
    for made in vars(module).values()
    if is_dataclass(made) and made.__module__ == module.__name__
]


def test_it_reads_compares_and_hashes_alike() -> None:
    one, other = Quick(name="a"), Quick(name="a", count=3)
    assert (repr(one), one.name, one.count) == ("Quick(name='a', count=3)", "a", 3)
    assert (one, hash(one)) == (other, hash(other))
    assert one != Quick(name="b")
    assert type(one) is Quick


def test_it_stays_frozen_and_takes_no_other_field() -> None:
    made = Quick(name="a")
    with pytest.raises(FrozenInstanceError):
        made.name = "b"  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        object.__setattr__(made, "other", 1)


def test_it_is_copied_replaced_and_pickled() -> None:
    made = Quick(name="a", count=7)
    assert [copy.deepcopy(made), pickle.loads(pickle.dumps(made))] == [made, made]
    assert replace(made, name="b") == Quick(name="b", count=7)


@pytest.mark.parametrize("arguments", [{}, {"name": "a", "other": 1}])
def test_wrong_arguments_are_refused_in_the_same_words(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as stock:
        Stock(**arguments)
    with pytest.raises(TypeError) as found:
        Quick(**arguments)
    assert str(found.value) == str(stock.value).replace("Stock", "Quick")


def test_a_default_made_anew_is_refused() -> None:
    with pytest.raises(TypeError, match="Listed has a default factory; leave @quick out"):

        @quick
        @dataclass(frozen=True, slots=True)
        class Listed:
            items: list[int] = field(default_factory=list)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_the_signature_is_that_of_the_fields(record: Any) -> None:
    told = inspect.signature(record).parameters.values()
    assert [(p.name, p.kind is p.KEYWORD_ONLY) for p in told] == [
        (each.name, each.kw_only) for each in fields(record) if each.init
    ]
