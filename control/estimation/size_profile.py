"""The profile per query over the distribution of sizes, for planners that ignore single sizes.

Planners start with a given distribution of sizes. After the first thousand queries they use the
observed distribution if it differs (``control/policies/kairos/size_watch.py``).
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
    """A profile whose batches are sizes up to ``most``, and the initial distribution of sizes.

    ``guessed``: the first thousand queries replace the distribution in any case.
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
    """The sizes that ingresses count; ``profile`` is per query over the distribution in use."""

    def __init__(self, by_size: ProfileBySize) -> None:
        self._by_size = by_size
        self._watch = SizeWatch(by_size.sizes, by_size.most, guessed=by_size.guessed)
        self.profile = by_size.per_query(by_size.sizes)

    def observe(self, report: Report) -> bool:
        """Update the sizes from an ingress's report; return whether ``profile`` has changed."""
        self._watch.take(report.node, report.incarnation, report.counts)
        if not self._watch.changed():
            return False
        self.profile = self._by_size.per_query(self._watch.distribution)
        return True

    def forget(self, node: str) -> None:
        """Forget an ingress that is gone."""
        self._watch.forget(node)


def growth(before: ProfileTable, after: ProfileTable, device: str) -> float:
    """Return the mean ratio of a query's latency on a device under ``after`` to that under
    ``before``, over the variants measured there; 1 if there are none."""
    found = []
    for task, variant in dict.fromkeys((each.task, each.variant) for each in after.entries):
        with contextlib.suppress(ProfileError):
            seconds = [
                table.latency_s(task, variant, device, 1, "mean") for table in (before, after)
            ]
            found.append(seconds[1] / seconds[0])
    return statistics.fmean(found) if found else 1.0
