"""Labels as users write them: a JSON object, or a Label record in Avro.

    {"id": "letter-17", "truth": "75001"}
    {"id": "letter-17", "right": 4, "of": 5}

Without "id" the record's key is the id.
"""

from typing import Any

from schemas.codec.raw import MAX_ID_LENGTH
from schemas.codec.single_object import decode
from schemas.codec.values import MAX_DEPTH, CodecError, from_json_text
from schemas.records import Label

KEYS = ("id", "truth", "right", "of")
WANTED = 'write {"id": ..., "truth": ...} or {"id": ..., "right": ..., "of": ...}'


def label_of(value: bytes, key: bytes = b"") -> Label:
    """Return the label in a record's value; raise CodecError with the fault."""
    found = _from_json(value, key) if value.lstrip()[:1] == b"{" else decode(value)
    if not isinstance(found, Label):
        raise CodecError(f"a {type(found).__name__} record where a Label was expected")
    _check(found)
    return found


def _from_json(value: bytes, key: bytes) -> Label:
    try:
        row = from_json_text(value.decode(), MAX_DEPTH + 1)
    except ValueError as error:
        raise CodecError(f"the label is no JSON: {error}; {WANTED}") from None
    assert isinstance(row, dict)
    unknown = [name for name in row if name not in KEYS]
    if unknown:
        raise CodecError(f"a label has no {unknown[0][:40]!r}; {WANTED}")
    name = row.get("id", key.decode(errors="replace"))
    if not isinstance(name, str):
        raise CodecError(f"the label's id is {str(name)[:40]}; it must be a text")
    return Label(
        id=name,
        truth=row.get("truth"),
        right=_number(row, "right"),
        of=_number(row, "of"),
    )


def _number(row: dict[str, Any], name: str) -> float | None:
    found = row.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise CodecError(f"the label's {name} is {str(found)[:40]!r}; it must be a number")
    try:
        return float(found)
    except OverflowError:
        raise CodecError(f"the label's {name} is too large") from None


def _check(label: Label) -> None:
    if not label.id:
        raise CodecError(f"the label has no id; {WANTED}")
    if len(label.id) > MAX_ID_LENGTH:
        raise CodecError(
            f"the label's id has {len(label.id)} characters; at most {MAX_ID_LENGTH} are allowed"
        )
    if label.right is None and label.of is None:
        if label.truth is None:
            raise CodecError(f"the label has no truth; {WANTED}")
        return
    if label.truth is not None or label.right is None or label.of is None:
        raise CodecError(f'a label has either "truth" or "right" and "of"; {WANTED}')
    if not (0.0 <= label.right <= label.of and 0.0 < label.of <= 1e9):
        raise CodecError(
            f"the label says {label.right:g} right of {label.of:g} parts; at most all are right, "
            "of 1e9 at most"
        )
