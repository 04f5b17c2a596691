"""The variants on a device, as executors hold them, and when they are evicted.

A variant that is loaded alone evicts those loaded before it at its first use, so that a swap leaves
no gap. A variant that is loaded beside others evicts none.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from schemas.effects import Load

M = TypeVar("M")


class LoadedVariants(Generic[M]):
    """Models by variant. Called by the threads of an executor: each step is atomic."""

    __slots__ = ("_beside", "_leaving", "_models")

    def __init__(self) -> None:
        self._models: dict[str, M] = {}
        self._beside: set[str] = set()
        # By variant: the models that its first use evicts, those held when it was loaded.
        self._leaving: dict[str, dict[str, M]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._models))

    def has_beside(self, variant: str) -> bool:
        """Return whether a variant was loaded beside others."""
        return variant in self._beside

    def add(self, load: Load, model: M) -> None:
        """Hold a loaded model; a fresh one replaces the present one."""
        replaced = self._models.get(load.variant) if load.fresh else None
        self._models[load.variant] = model
        if replaced is not None:
            for leaving in self._leaving.values():
                if leaving.get(load.variant) is replaced:
                    leaving[load.variant] = model
        if load.beside:
            self._beside.add(load.variant)
        elif replaced is None:
            self.alone(load.variant)

    def alone(self, variant: str) -> None:
        """Evict all others at the first use of a variant."""
        self._leaving[variant] = {k: m for k, m in list(self._models.items()) if k != variant}

    def use(self, variant: str) -> M:
        """Return the model of a variant for a batch; raise ``KeyError`` if it is not held."""
        model = self._models[variant]
        if variant in self._leaving:
            self._evict(self._leaving.pop(variant))
        return model

    def unload(self, variant: str) -> None:
        """Evict a variant."""
        self._models.pop(variant, None)
        self._beside.discard(variant)
        self._leaving.pop(variant, None)
        for leaving in list(self._leaving.values()):  # else it would stay in memory until then
            leaving.pop(variant, None)

    def _evict(self, leaving: dict[str, M]) -> None:
        """Evict the models held before a swap, except those loaded anew since."""
        for variant, model in list(leaving.items()):
            if self._models.get(variant) is model:
                self.unload(variant)
