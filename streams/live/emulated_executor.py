"""Emulated devices in a live run: what a worker asks of a model is drawn, not computed."""

from collections.abc import Callable
from typing import Any, Protocol

from schemas.effects import Infer, Inferred, Load, Loaded
from streams.live.live_driver import Clock, PostAt


class Emulation(Protocol):
    """A variant that waits its profiled latency instead of computing."""

    def latency_s(self, batch: int) -> float: ...
    def predict(self, values: list[Any]) -> list[Any]: ...


class EmulatedExecutor:
    """Emulated devices: time passes on the driver's timers, outputs are drawn from the profile.

    One process hosts many of them, because none needs a thread.
    """

    def __init__(
        self,
        make: Callable[[str], Emulation],
        load_s: Callable[[str], float],
        post_at: PostAt,
        clock: Clock,
    ) -> None:
        self._make = make
        self._load_s = load_s
        self._post_at = post_at
        self._clock = clock
        self._variants: dict[str, Emulation] = {}

    def infer(self, effect: Infer) -> None:
        began = self._clock()
        variant = self._variants[effect.variant]
        ends = began + variant.latency_s(effect.cost)
        outputs = tuple(variant.predict(list(effect.values)))
        self._post_at(ends, Inferred(effect.job, outputs, began, ends))

    def load(self, effect: Load) -> None:
        self._variants[effect.variant] = self._make(effect.variant)
        seconds = self._load_s(effect.variant)
        self._post_at(self._clock() + seconds, Loaded(effect.variant, seconds))

    def look(self, now: float) -> None:
        """Nothing can be stuck."""

    def close(self) -> None:
        """Nothing to let go."""
