"""Plain Python as an operator: a function, or a class with callable instances."""

import inspect
from collections.abc import Mapping
from typing import Any

from operators.calls.operator_outputs import listed
from operators.models.model_errors import BadOperator
from operators.models.module_references import resolve
from schemas.records import Value


class Python:
    """The callable ``function`` ("module:name"), called per value or, ``batched``, per batch.

    ``load`` instantiates a class once with ``arguments``; a function gets them with every call.
    An exception for one value is that value's output; the others still run.
    """

    def __init__(
        self,
        function: str,
        arguments: Mapping[str, Any] | None = None,
        batched: bool = False,
    ) -> None:
        self._reference = function
        self._function = resolve(function)
        self._arguments = dict(arguments or {})
        self._batched = batched
        if not callable(self._function):
            raise BadOperator(f"{function} cannot be called; name a function or a class")

    def load(self, device: str) -> None:
        """Instantiate ``function`` if it is a class; ``device`` is ignored."""
        if not inspect.isclass(self._function):
            return
        self._function = self._function(**self._arguments)
        self._arguments = {}
        if not callable(self._function):
            raise BadOperator(f"{self._reference} has no method __call__; give it one")

    def predict(self, batch: list[Value]) -> list[Any]:
        """Return one output per value."""
        if self._batched:
            return listed(self._function(batch, **self._arguments))
        return [self._one(value) for value in batch]

    def _one(self, value: Value) -> Any:
        try:
            return self._function(value, **self._arguments)
        except Exception as error:  # noqa: BLE001 - any user error fails only this value
            return error
