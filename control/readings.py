"""What had a worker counted when it last reported? What is new since then is the difference."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """A worker's counts, which begin again at 0 with every incarnation."""

    incarnation: float
    sent_s: float
    counts: Mapping[str, float]
