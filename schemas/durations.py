"""Parse durations as people write them: a number and its unit."""

import re
from typing import Any

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
MOST_S = 1e9  # 32 years; times of far longer ones have no date
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?([^\d\s.]*)")


def duration(value: Any) -> float:
    """Return the seconds of a text such as "300ms".

    Raises ``ValueError`` that names the units, or ``MOST_S`` for a longer one, with ``{}`` for the
    name of the value.
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
    seconds = float(number) * UNITS[unit]
    if seconds > MOST_S:
        raise ValueError(f"{{}} is above {MOST_S:.0f}s; write a shorter one, such as 300ms")
    return seconds
