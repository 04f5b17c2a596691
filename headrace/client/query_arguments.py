"""A query from the arguments of a call of ``headrace.Client``. Pure."""

import math
from numbers import Real

from schemas.codec.raw import query_fault
from schemas.codec.values import CodecError
from schemas.durations import duration
from schemas.records import Query, Value


def seconds(name: str, said: float | str | None) -> float | None:
    """Return a time in seconds: a number of them, or a text as in the pipeline file ("300ms").

    Raises ``ValueError``, with the ``name`` of the argument.
    """
    if said is None:
        return None
    if isinstance(said, Real) and not isinstance(said, bool):
        if math.isnan(said):
            raise ValueError(f"{name} is nan; say seconds, as in 0.3, or a text such as 300ms")
        return float(said)
    try:
        return duration(said)
    except ValueError as error:
        raise ValueError(str(error).replace("{}", name, 1)) from None


def query_of(
    payload: Value,
    *,
    id: str,
    deadline_s: float | None,
    slo_class: str = "",
    session: str = "",
    size: int = 1,
    raw: bool,
) -> Query:
    """Return the query; ``deadline_s`` in epoch seconds. ``raw``: its input topic takes bytes.

    Raises ``TypeError`` and ``ValueError`` for arguments that no query can have.
    """
    if raw and not isinstance(payload, bytes):
        raise TypeError(
            f"the payload is {type(payload).__name__}, but a raw input topic takes bytes; "
            'encode it, or say input="avro" if the pipeline file does'
        )
    for name, said in (("id", id), ("slo_class", slo_class), ("session", session)):
        if not isinstance(said, str):
            raise TypeError(f"{name} is {said!r:.60}; it must be a str")
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(f"size is {size!r:.60}; it must be a whole number from 1")
    query = Query(
        payload=payload, id=id, deadline_s=deadline_s, slo_class=slo_class, size=size,
        session=session,
    )  # fmt: skip
    wrong = query_fault(query)
    if wrong:  # ingress would answer it under another id, which nobody awaits
        raise CodecError(wrong)
    return query
