"""The number of examples that a property test tries."""

from hypothesis import settings


def at_most(examples: int) -> int:
    """Return the number of examples of Hypothesis' profile in force, but at most ``examples``.

    A number given to ``settings`` replaces that of the profile, also where the profile has fewer
    (``make check``).
    """
    return min(examples, settings.default.max_examples)
