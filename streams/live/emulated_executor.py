"""Emulated devices in a live run: latencies and outputs are drawn, not computed."""

from collections.abc import Callable
from typing import Any, Protocol

from schemas.effects import Infer, Inferred, Load, Loaded
from streams.live.live_driver import Clock, PostAt


class Emulation(Protocol):
    """A variant with latencies and outputs from its profile."""

    def latency_s(self, batch: int) -> float: ...
    def predict(self, values: list[Any]) -> list[Any]: ...


class EmulatedExecutor:
    """Executor of emulated devices: batches and loads end by the driver's timers.

    It needs no thread, so one process hosts many of them.
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
        """Do nothing: an emulated device cannot hang."""

    def close(self) -> None:
        """Do nothing: an emulated device holds no resources."""
