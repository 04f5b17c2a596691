"""Names of counts in reports: the quantity counted and, where there are several, its labels.

``arrived`` of ingress has no label; ``arrived/read/forest`` of a worker has a variant,
``children/locate/net/read`` a variant and a child, ``dropped/read_late`` of egress a reason code.
Only this module splits names.
"""

from functools import lru_cache
from typing import NamedTuple

CHARGED_S = "charged_s"  # by variant: the CPU time that a worker with a part of a CPU paid for
UNLOADABLE = "unloadable"  # by setting: 1 while a worker that serves sessions cannot load it
# Cached names: a pipeline has a few hundred, and some per session. Reports repeat all of them in
# order, so that a smaller cache than their number has no hits at all.
KEPT = 65536


class CountName(NamedTuple):
    """The quantity (``what``), and the labels that it is counted by (``of``), "" for none."""

    what: str
    of: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The parts of ``of``."""
        return tuple(self.of.split("/")) if self.of else ()


def to_egress_names(task: str) -> tuple[str, str, str]:
    """Return the names of egress' counts of a task, from the start of its batch to egress: items,
    their seconds, and the squares of these."""
    return f"to_egress/{task}", f"to_egress_s/{task}", f"to_egress_s2/{task}"


@lru_cache(KEPT)
def count_name(text: str) -> CountName:
    """Split a name from a report."""
    what, _, of = text.partition("/")
    return CountName(what, of)
