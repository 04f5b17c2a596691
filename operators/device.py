"""Which variants are on a worker's device, and which is on its way?

Make before break: the old variant serves until the new one is loaded, and the swap happens
between two batches. A worker that follows tables holds others ``beside`` the one that serves; they
come one after the other once that one is there. Variants are named "task/variant".
"""

from collections.abc import Sequence

from schemas.effects import Effect, Load
from schemas.variant_id import variant_id


class Device:
    """``serving`` infers, ``loading`` is on its way, ``standby`` waits for the batch to end.

    ``held`` are all that can infer now.
    """

    __slots__ = ("_beside", "_fetching", "_refused", "_standby", "held", "loading", "serving")

    def __init__(self) -> None:
        self.serving = ""
        self.loading = ""
        self.held: frozenset[str] = frozenset()
        self._standby = ""
        self._beside: tuple[str, ...] = ()
        self._fetching = ""  # what is to be held beside
        self._refused: frozenset[str] = frozenset()  # could not be loaded since it was wanted

    def want(self, variant: str, beside: Sequence[str] = ()) -> list[Effect]:
        """The plan wants this variant ("": none, then what is there stays), and those beside."""
        task = variant_id(variant).task
        if variant and variant_id(self.serving).task != task:
            self.serving, self.held = "", frozenset()  # of no use for another task
        if tuple(beside) != self._beside:
            self._beside, self._refused = tuple(beside), frozenset()
        if not variant or variant == self.loading:
            return []
        if beside and variant in self.held:
            self.serving = variant
        # What was to come until now is overtaken: it must not serve after all.
        alone = beside or len(self.held) <= 1
        there = variant == self._standby or (variant == self.serving and alone)
        self._standby = variant if variant == self._standby else ""
        self.loading = "" if there else variant
        return self.more() if there else [Load(variant)]

    def more(self) -> list[Effect]:
        """The next variant that is wanted beside, where it can be its turn."""
        if not self.serving or self.loading or self._standby or self._fetching:
            return []
        there = self.held | self._refused
        self._fetching = next((each for each in self._beside if each not in there), "")
        return [Load(self._fetching, beside=True)] if self._fetching else []

    def loaded(self, variant: str) -> None:
        """A load ended; one that a later plan has overtaken is of no interest."""
        if variant == self.loading:
            self._standby, self.loading = variant, ""
        if variant == self._fetching:
            self._fetching = ""
            if variant in self._beside:
                self.held |= {variant}

    def gave_up(self, variant: str) -> bool:
        """A load failed; True if it was one wanted."""
        wanted = variant in (self.loading, self._fetching)
        if variant == self._fetching:
            self._fetching = ""
            self._refused |= {variant}
        if variant == self.loading:
            self.loading = ""
        return wanted

    def swap(self) -> bool:
        """Between two batches: what is on standby serves from now on; False if nothing is."""
        if not self._standby:
            return False
        self.serving, self._standby = self._standby, ""
        self.held = frozenset((self.serving,))
        return True
