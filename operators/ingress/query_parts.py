"""Split a query above the largest size into parts, each of which is work of its own.

The parts share the query's credit, so that egress joins their answers as it joins those of a
fan-out: the combine function gets them in the order of the parts.
"""

from collections.abc import Callable, Sequence

from operators.calls.own_values import immutable, own_value
from operators.calls.user_frames import error_sentence
from operators.record_size import excess
from operators.serving.fanout import as_value
from operators.serving.fanout import split_credit as shares
from operators.serving.sized import Sized
from schemas.pipeline import MOST_PARTS, QuerySize
from schemas.records import FULL_CREDIT, Item, Query, Value

# (payload of a query, its size, largest size of a part) to the parts, in order
Split = Callable[[Value, int, int], Sequence[Sized]]

ROOT = 0  # first number in the branches of parts, as of a fan-out above the root


class UnfitQuery(ValueError):
    """A query cannot be served because of its size; the message is one sentence."""


def sized_items(query: Query, sizes: QuerySize, split: Split | None) -> list[tuple[Item, int]]:
    """Return the items of a query and their sizes: the query itself, or its parts if it is above
    the largest size.

    Raises ``UnfitQuery`` for a size or a payload that is refused, and where the user's function
    ``split`` raises or its parts do not make up the query.
    """
    splits = split is not None and bool(sizes.split)
    largest = sizes.largest if splits else sizes.most
    if not 1 <= query.size <= largest:
        raise UnfitQuery(f"size {query.size} is not from 1 to {largest}; split the query")
    if query.size <= sizes.most or split is None:
        _check_payload(query.payload)
        return [(Item(value=query.payload), query.size)]
    parts = _checked(query, sizes, _split(query, sizes, split))
    credits = shares(FULL_CREDIT, len(parts))
    return [
        (Item(branch=(ROOT, at), credit=credit, value=part.value), part.size)
        for at, (part, credit) in enumerate(zip(parts, credits, strict=True))
    ]


def even_parts(payload: Value, size: int, most: int) -> list[Sized]:
    """Split a size alone, evenly: simulations have no payloads to split."""
    count = -(-size // most)
    return [Sized(payload, part) for part in shares(size, count)]


def _split(query: Query, sizes: QuerySize, split: Split) -> Sequence[Sized]:
    try:
        return list(split(query.payload, query.size, sizes.most))
    except BaseException as error:  # a user's function may raise anything, also SystemExit
        raise UnfitQuery(
            f"size.split of the pipeline file, {sizes.split}, raised {error_sentence(error)} for a "
            f"query of size {query.size}"
        ) from error


def _checked(query: Query, sizes: QuerySize, parts: Sequence[Sized]) -> Sequence[Sized]:
    """Return the parts as they are sent, if each fits and their sizes sum to the query's."""
    who = f"size.split of the pipeline file, {sizes.split},"
    if not parts or len(parts) > MOST_PARTS or any(type(each) is not Sized for each in parts):
        raise UnfitQuery(f"{who} must return a list of 1 to {MOST_PARTS} Sized(value, size)")
    largest, total = max(each.size for each in parts), sum(each.size for each in parts)
    if largest > sizes.most or total != query.size:
        raise UnfitQuery(
            f"{who} made parts of {total} in all and {largest} at most of a query of size "
            f"{query.size}; make parts of {sizes.most} at most that sum to it"
        )
    try:
        return [Sized(own_value(as_value(each.value), immutable), each.size) for each in parts]
    except Exception as error:  # a user's type may raise anything when it is read
        raise UnfitQuery(f"{who} made a part that cannot be sent: {error}") from error


def _check_payload(payload: Value) -> None:
    too_large = excess(payload)
    if too_large:
        raise UnfitQuery(too_large)
