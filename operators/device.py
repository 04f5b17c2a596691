"""Which variant is on a worker's device, and which is on its way?

Make before break: the old variant serves until the new one is loaded, and the swap happens
between two batches. Variants are named "task/variant".
"""

from schemas.effects import Effect, Load


class Device:
    """``serving`` infers, ``loading`` is on its way, ``standby`` waits for the batch to end."""

    __slots__ = ("_standby", "loading", "serving")

    def __init__(self) -> None:
        self.serving = ""
        self.loading = ""
        self._standby = ""

    def want(self, variant: str) -> list[Effect]:
        """The plan wants this variant ("": none, then what is there stays)."""
        task = variant.partition("/")[0]
        if variant and self.serving.partition("/")[0] != task:
            self.serving = ""  # of no use for another task
        if not variant or variant == self.loading:
            return []
        # What was to come until now is overtaken: it must not serve after all.
        there = variant in (self.serving, self._standby)
        self._standby = variant if variant == self._standby else ""
        self.loading = "" if there else variant
        return [] if there else [Load(variant)]

    def loaded(self, variant: str) -> None:
        """A load ended; one that a later plan has overtaken is of no interest."""
        if variant == self.loading:
            self._standby, self.loading = variant, ""

    def gave_up(self, variant: str) -> bool:
        """A load failed; True if it was the one wanted."""
        wanted = variant == self.loading
        if wanted:
            self.loading = ""
        return wanted

    def swap(self) -> bool:
        """Between two batches: what is on standby serves from now on; False if nothing is."""
        if not self._standby:
            return False
        self.serving, self._standby = self._standby, ""
        return True
