"""A LightGBM booster, stored as text, as an operator."""

import re
from typing import Any, ClassVar

import numpy as np

from operators.models.hooks import hooks
from operators.models.libraries import library
from operators.models.model_errors import BadDevice, BadWeights
from operators.models.weights import LIGHTGBM_TEXT, weights_file
from schemas.records import Value


class LightGbm:
    """The booster in ``weights``; its input is one row of features per value.

    ``before`` and ``after`` are hooks, "module:function" (``hooks.Hooks``).
    """

    libraries: ClassVar = ("lightgbm",)

    def __init__(self, weights: str, before: str = "", after: str = "") -> None:
        self._weights = weights_file(weights, LIGHTGBM_TEXT)
        self._hooks = hooks(before, after)

    def load(self, device: str) -> None:
        """Read the booster; ``device`` must be cpu.

        Raise ``BadWeights`` for a file that is cut short, as by a copy that was interrupted.
        """
        if device != "cpu":
            raise BadDevice(
                f"LightGBM predicts on cpu only, not on {device!r}; give it cpu workers"
            )
        if not is_whole(self._weights.read_bytes()):
            raise BadWeights(
                f"{str(self._weights)!r} is no LightGBM model, or is cut short; copy it once more"
            )
        lightgbm = library("lightgbm")
        try:
            self._booster = lightgbm.Booster(model_file=self._weights)
        except lightgbm.basic.LightGBMError as error:
            raise BadWeights(f"{str(self._weights)!r} is no LightGBM model: {error}") from error

    def predict(self, batch: list[Value]) -> list[Any]:
        """Return one output per value."""
        return self._hooks.run(batch, self._infer)

    def _infer(self, features: np.ndarray) -> Any:
        return self._booster.predict(features, num_threads=1)


def is_whole(model: bytes) -> bool:
    """Return whether a booster's text has all of its trees and parameters.

    LightGBM reads on behind the end of a shorter one, which ends the process.
    """
    header, *rest = re.split(rb"\r?\n\r?\n", model, maxsplit=1)
    sizes = re.search(rb"^tree_sizes=([0-9 ]+)", header, re.MULTILINE)
    trees_bytes = sum(map(int, sizes[1].split())) if sizes else 0
    if not rest or len(rest[0]) < trees_bytes:
        return False
    end = rest[0][trees_bytes:]
    return b"\nparameters:" not in end or b"\nend of parameters" in end
