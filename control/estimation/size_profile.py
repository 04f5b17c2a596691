"""The profile by query over the sizes that queries have, for planners that look at no single size.

They begin with a known distribution of sizes. From the first thousand queries on they go by those
that are seen where these differ (``control/policies/kairos/size_watch.py``).
"""

import contextlib
import statistics
from dataclasses import dataclass

from control.policies.kairos.query_sizes import SizeDistribution
from control.policies.kairos.size_watch import SizeWatch
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.records import Report


@dataclass(frozen=True, slots=True)
class ProfileBySize:
    """A profile whose batches are sizes up to ``most``, and the sizes that queries have at first.

    ``guessed``: the first thousand queries replace them, whatever their sizes are.
    """

    table: ProfileTable
    sizes: SizeDistribution
    most: int
    guessed: bool = False

    def per_query(self, sizes: SizeDistribution) -> ProfileTable:
        """Return the profile of a query whose size is drawn from ``sizes``.

        Raises ``ProfileError`` for a size above the largest measured one.
        """
        return self.table.per_query(dict(zip(sizes.sizes, sizes.probabilities, strict=True)))


PlannedBy = ProfileTable | ProfileBySize | None  # None: nothing was measured


class SeenSizes:
    """The sizes that an ingress counts; ``profile`` is by query over those in use."""

    def __init__(self, by_size: ProfileBySize) -> None:
        self._by_size = by_size
        self._watch = SizeWatch(by_size.sizes, by_size.most, guessed=by_size.guessed)
        self.profile = by_size.per_query(by_size.sizes)

    def observe(self, report: Report) -> bool:
        """Take the report of an ingress; return whether ``profile`` is another one now."""
        self._watch.take(report.node, report.incarnation, report.counts)
        if not self._watch.changed():
            return False
        self.profile = self._by_size.per_query(self._watch.distribution)
        return True


def growth(before: ProfileTable, after: ProfileTable, device: str) -> float:
    """Return how many times as long a query takes on a device by another profile, in the mean over
    the variants that were measured there; 1 where none was."""
    found = []
    for task, variant in dict.fromkeys((each.task, each.variant) for each in after.entries):
        with contextlib.suppress(ProfileError):
            seconds = [
                table.latency_s(task, variant, device, 1, "mean") for table in (before, after)
            ]
            found.append(seconds[1] / seconds[0])
    return statistics.fmean(found) if found else 1.0
