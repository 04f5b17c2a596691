"""Records that are made quickly are like all frozen records, but for the time it takes."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from schemas.filling import quick


@quick
@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float = 2.0


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    name: str
    at: Point = Point(0.0)


def test_fields_are_as_given_or_by_default() -> None:
    assert (Point(1.0).x, Point(1.0).y, Point(1.0, y=5.0).y) == (1.0, 2.0, 5.0)
    assert Named(name="here").at == Point(0.0, 2.0)


def test_its_class_is_the_one_that_was_asked_for() -> None:
    assert type(Point(1.0)) is Point
    assert repr(Point(1.0)) == "Point(x=1.0, y=2.0)"


def test_equal_fields_make_equal_records_with_equal_hashes() -> None:
    assert Point(1.0) == Point(1.0, 2.0) != Point(2.0)
    assert hash(Named(name="a")) == hash(Named(name="a"))


def test_nothing_changes_it_once_it_is_made() -> None:
    point = Point(1.0)
    with pytest.raises(FrozenInstanceError):
        point.x = 3.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.y
    assert replace(point, x=3.0) == Point(3.0)


def test_it_survives_pickling_and_copying() -> None:
    named = Named(name="here", at=Point(4.0))
    assert pickle.loads(pickle.dumps(named)) == copy.deepcopy(named) == named


def test_what_is_missing_unknown_or_unnamed_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing .* 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1.0, z=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        Named("here")  # type: ignore[misc]


def test_a_default_that_is_made_anew_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Listed:
        items: list[int] = field(default_factory=list)

    with pytest.raises(TypeError, match="Listed has a default factory"):
        quick(Listed)
