"""Parse durations as people write them: a number and its unit."""

import re
from typing import Any

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?([^\d\s.]*)")


def duration(value: Any) -> float:
    """Return the seconds of a text such as "300ms".

    Raises ``ValueError`` that names the units, with ``{}`` for the name of the value.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"{{}} is {value} without a unit; write {value}ms or {value}s")
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{{}} is {value!r}, which is no duration; write one such as 300ms")
    number, unit = match.groups()
    if unit == "":
        raise ValueError(f"{{}} is {value!r} without a unit; write {number}ms or {number}s")
    if unit not in UNITS:
        raise ValueError(f"{{}} is {value!r}, but {unit!r} is no unit here; use us, ms or s")
    return float(number) * UNITS[unit]
