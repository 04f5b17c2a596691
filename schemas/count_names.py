"""The names of counts in reports: what is counted, and of what where there are several.

``arrived`` of ingress stands alone; ``arrived/read/forest`` of a worker is of a variant,
``children/locate/net/read`` of a variant and a child, ``dropped/read_late`` of egress of a reason
code. Names are split here alone.
"""

from functools import lru_cache
from typing import NamedTuple

KEPT = 4096  # names that are split once; a pipeline has a few hundred


class CountName(NamedTuple):
    """``what`` is counted, and ``of`` what: "" where there is one of it."""

    what: str
    of: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The parts of ``of``."""
        return tuple(self.of.split("/")) if self.of else ()


@lru_cache(KEPT)
def count_name(text: str) -> CountName:
    """Split a name as it stands in a report."""
    what, _, of = text.partition("/")
    return CountName(what, of)
