"""Load journal: a file that records which variants were being loaded when a worker's process died.

A load that ends its process (a segmentation fault, the kernel out of memory, a load that never
ends) would end every later process too, and with it whatever else the worker serves. After
``MOST_DEATHS`` such ends the variant is set aside.
"""

from pathlib import Path

from streams.live.crash_journal import CrashJournal
from streams.live.steady_clock import Clock

MOST_DEATHS = 3
AGAIN_S = 600.0  # the cause may be gone: a process of this age tries the variant again


class LoadJournal:
    """The loads under way, in a file that outlives the process, and how often each variant was
    being loaded when an earlier process died."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._journal, self._clock = CrashJournal(path), clock
        self._loading: list[str] = []
        self._again_s = clock() + AGAIN_S
        self._refused: set[str] = set()

    def set_aside(self, variant: str, *, fresh: bool = False) -> str:
        """Return why a variant is not to be loaded now, "" if it may be.

        A ``fresh`` load is of code that may be mended, but not if it is the process's first one of
        the variant: that is fresh whenever the variant was ever reloaded.
        """
        deaths = self._journal.strikes.get(variant, 0)
        mended = fresh and variant in self._refused
        if deaths < MOST_DEATHS or mended or self._clock() >= self._again_s:
            return ""
        self._refused.add(variant)
        return (
            f"{deaths} processes of this worker died while they loaded it; mend its load() and run "
            "`headrace reload`, or give it `limits: {memory: ...}` for a process of its own; it is "
            f"tried again after {AGAIN_S:g} s"
        )

    def began(self, variant: str) -> None:
        """Record that a load begins."""
        if variant not in self._loading:
            self._loading.append(variant)
        self._journal.began(self._loading)

    def failed(self, variant: str) -> None:
        """Record that a load failed, and its process lives."""
        if variant in self._loading:  # not once this process ends
            self._loading.remove(variant)
            self._journal.began(self._loading)

    def loaded(self, variant: str) -> None:
        """Record that a load succeeded: the earlier deaths do not count any more."""
        self._journal.forgive(variant)
        self.failed(variant)

    def forget(self) -> None:
        """Forget all deaths: the process ends on request, and its loads may be mended."""
        self._loading.clear()
        self._journal.forget()
