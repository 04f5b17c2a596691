"""Builds of operators: the edits of the user's code that a worker's loaded variants include.

The command ``reload`` raises a variant's build number in the plan's settings. The worker loads a
variant of an earlier build anew beside the old one, which serves meanwhile. It reloads one variant
at a time, so that a device holds at most one variant twice.
"""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from schemas.effects import Effect, Load


class OperatorBuilds:
    """The builds that commands ask for, and those that this worker has."""

    __slots__ = ("_asked", "_built", "_renewing")

    def __init__(self) -> None:
        self._asked: Mapping[str, int] = {}
        self._built: dict[str, int] = {}
        self._renewing = ""  # the variant that is being loaded anew

    def ask(self, reloads: Mapping[str, int]) -> None:
        """Take a plan's build numbers."""
        self._asked = reloads

    def fresh(self, effects: list[Effect]) -> list[Effect]:
        """Return the effects; mark loads that must read the operator's code anew ``fresh``."""
        return [self._fresh(each) if type(each) is Load else each for each in effects]

    def renew(self, held: Collection[str]) -> list[Effect]:
        """Return the load of the next held variant with an old build, if none is under way."""
        old = sorted(variant for variant in held if self._old(variant))
        if not old or self._renewing:
            return []
        self._renewing = old[0]
        return [self._fresh(Load(old[0]))]

    def ended(self, variant: str) -> bool:
        """Record the end of a load; return whether ``renew`` began it."""
        renewed = variant == self._renewing
        if renewed:
            self._renewing = ""
        return renewed

    def _old(self, variant: str) -> bool:
        return self._asked.get(variant, 0) > self._built.get(variant, 0)

    def _fresh(self, load: Load) -> Load:
        if not self._old(load.variant):
            return load
        self._built[load.variant] = self._asked[load.variant]
        return replace(load, fresh=True)
