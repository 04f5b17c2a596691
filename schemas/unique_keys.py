"""JSON objects that name a key twice: parsers usually keep the last one silently."""

from collections.abc import Sequence
from typing import Any


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, as ``object_pairs_hook`` of ``json.loads``; raise ``ValueError``
    for a key that is there twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there a second time; remove or rename one")
        found[key] = value
    return found
