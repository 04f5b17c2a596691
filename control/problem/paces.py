"""Paces of operators: the seconds that they take on a tier over those of their profile.

A pace belongs to a variant ("task/variant") and a tier. The variant ``OTHERS`` stands for those of
which none is known on that tier.
"""

from collections.abc import Mapping

OTHERS = ""

Paces = Mapping[tuple[str, str], float]  # by variant and tier


def pace_of(paces: Paces, variant: str, tier: str) -> float:
    """Return the pace of a variant on a tier; 1 if it is not known."""
    return paces.get((variant, tier), paces.get((OTHERS, tier), 1.0))
