"""The accuracy that a profile predicts for answers, by measured paths and by products."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from operators.outcomes import outcome_of
from profiles.measurements import ProfileError
from profiles.path_accuracy import PathGap, path_gap
from profiles.profile_table import ProfileTable
from schemas.records import ANSWERED, Answer


@dataclass(frozen=True, slots=True)
class ExpectedAccuracy:
    """The accuracy that the profile predicts for the answered branches: by measured paths, and by
    the products of their variants' accuracies."""

    by_paths: float
    by_products: float
    gap: PathGap

    def as_json(self) -> dict[str, Any]:
        """Return the prediction as a JSON row."""
        return {
            "by_paths": round(self.by_paths, 6),
            "by_products": round(self.by_products, 6),
            "paths": self.gap.paths,
            "mean_difference": round(self.gap.mean, 6),
            "largest_difference": round(self.gap.largest, 6),
            "largest_path": list(self.gap.where),
        }


def expected_accuracy(answers: Iterable[Answer], table: ProfileTable) -> ExpectedAccuracy | None:
    """Return the accuracy that the profile predicts for the answered queries among these; None
    without measured paths."""
    gap = path_gap(table)
    if gap is None:
        return None
    answered = (answer for answer in answers if outcome_of(answer) == ANSWERED)
    counts = Counter(tuple(hop.key for hop in path) for answer in answered for path in answer.paths)
    try:
        known = [(table.along(key), table.product(key), n) for key, n in counts.items()]
    except ProfileError:  # a path that ended early, or a variant without a profile
        known = [(a, a, n) for key, n in counts.items() if (a := table.path_accuracy.get(key))]
    total = sum(n for *_, n in known)
    if not total:
        return None
    by_paths = sum(along * n for along, _, n in known) / total
    return ExpectedAccuracy(by_paths, sum(product * n for _, product, n in known) / total, gap)
