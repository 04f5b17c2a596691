"""An emulated device of a tier: computes here, then waits the rest of what the tier would take.

Its answers are real; a device of speed 0.5 takes twice the seconds of this machine.
"""

import time
from typing import Any

from streams.live.executors import Operator


class SlowedOperator:
    """An operator whose batches take ``stretch`` times as long as they compute."""

    def __init__(self, operator: Operator, stretch: float) -> None:
        self._operator, self._stretch = operator, stretch

    def load(self, device: str) -> None:
        self._operator.load(device)

    def predict(self, batch: list[Any]) -> list[Any]:
        """Return the operator's outputs, once the emulated device would have them."""
        began = time.monotonic()
        outputs = self._operator.predict(batch)
        time.sleep(max(0.0, self._stretch - 1.0) * (time.monotonic() - began))
        return outputs
