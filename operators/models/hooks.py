"""Hooks before and after a model: values to arrays, arrays to outputs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from operators.models.module_references import resolve
from schemas.records import Value

Before = Callable[[list[Value]], Any]
After = Callable[[Any], list[Any]]


def stacked(batch: list[Value]) -> Any:
    """Stack the values along a new first (batch) axis; every value must have the same shape.

    A dict of one array (a query with a signature) stands for its array.
    """
    return np.stack([np.asarray(_only(value)) for value in batch])


def _only(value: Value) -> Value:
    return next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value


def rows(outputs: Any) -> list[Any]:
    """Return one row of the model's first output array per value."""
    return list(outputs[0] if isinstance(outputs, tuple) else outputs)


@dataclass(frozen=True, slots=True)
class Hooks:
    """The functions before and after a model.

    ``before`` takes the list of values and returns the model's input, batch axis first; ``after``
    takes the model's output as numpy (an array or a tuple of arrays) and returns one output per
    value.
    """

    before: Before
    after: After

    def run(self, batch: list[Value], infer: Callable[[Any], Any]) -> list[Any]:
        """Return one output per value; a value that ``before`` refuses gets its exception instead.

        ``before`` refuses a value by ``ValueError`` or ``TypeError``; the other values still run.
        Raise ``ValueError`` if ``after`` returns another number of outputs.
        """
        if not batch:
            return []
        try:
            inputs = self.before(batch)
        except (TypeError, ValueError):
            return self._run_the_good(batch, infer)
        outputs = self.after(infer(inputs))
        if len(outputs) != len(batch):
            raise ValueError(
                f"the hook after the model returned {len(outputs)} outputs for {len(batch)} "
                f"inputs; it must return one for each"
            )
        return outputs

    def _run_the_good(self, batch: list[Value], infer: Callable[[Any], Any]) -> list[Any]:
        refusals = [self._refusal(value) for value in batch]
        if not any(refusals):  # each value passes alone, so the batch itself is at fault
            self.before(batch)
        good = [value for value, refusal in zip(batch, refusals, strict=True) if refusal is None]
        outputs = iter(self.run(good, infer))
        return [next(outputs) if refusal is None else refusal for refusal in refusals]

    def _refusal(self, value: Value) -> Exception | None:
        try:
            self.before([value])
        except (TypeError, ValueError) as error:
            return error
        return None


def hooks(before: str, after: str) -> Hooks:
    """Resolve hooks named "module:function"; "" stands for ``stacked`` and ``rows``."""
    return Hooks(
        before=resolve(before) if before else stacked,
        after=resolve(after) if after else rows,
    )
