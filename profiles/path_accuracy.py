"""The gap between the measured accuracy of paths and the product of their variants' accuracies."""

from dataclasses import dataclass

from profiles.profile_table import ProfileTable


@dataclass(frozen=True, slots=True)
class PathGap:
    """Measured minus product, over all measured paths: fractions, not points."""

    paths: int
    mean: float  # mean magnitude
    largest: float  # signed
    where: tuple[str, ...]  # the path of the largest


def path_gap(table: ProfileTable) -> PathGap | None:
    """Return the difference over a profile's paths; None where none was measured."""
    gaps = [(each.accuracy - table.product(each.path), each.path) for each in table.paths]
    if not gaps:
        return None
    largest, where = max(gaps, key=lambda gap: abs(gap[0]))
    mean = sum(abs(gap) for gap, _ in gaps) / len(gaps)
    return PathGap(len(gaps), mean, largest, where)


def gap_text(gap: PathGap) -> str:
    """Return the gap as a sentence, in points of accuracy."""
    return (
        f"{gap.paths} measured paths differ from the products of their variants' accuracies by "
        f"{100 * gap.mean:.1f} points on average, at most {100 * gap.largest:+.1f} "
        f"({' > '.join(gap.where)})"
    )
