"""A torch ``nn.Module`` with safetensors weights as an operator."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from operators.models.hooks import hooks
from operators.models.libraries import library, torch_on
from operators.models.model_errors import BadArguments, BadWeights
from operators.models.module_references import resolve
from operators.models.weights import SAFETENSORS, weights_file
from schemas.records import Value


class TorchModule:
    """The class ``module`` ("module:Class"), built with ``module_arguments``.

    ``weights`` is a safetensors file with the module's complete state; half precision is converted
    to the module's own. ``before`` and ``after`` are hooks, "module:function" (``hooks.Hooks``).
    """

    libraries: ClassVar = ("torch", "safetensors.torch")

    def __init__(
        self,
        module: str,
        weights: str,
        module_arguments: Mapping[str, Any] | None = None,
        before: str = "",
        after: str = "",
    ) -> None:
        self._module = module
        self._arguments = dict(module_arguments or {})
        self._weights = weights_file(weights, SAFETENSORS)
        self._hooks = hooks(before, after)

    def load(self, device: str) -> None:
        """Build the module on ``device``, cpu or cuda:N, with its weights."""
        torch_on(device)
        module = made(resolve(self._module), self._arguments, self._module)
        self._network = Network(module, str(self._weights), device)

    def predict(self, batch: list[Value]) -> list[Any]:
        """Return one output per value."""
        return self._hooks.run(batch, self._network.infer)

    def infer(self, inputs: np.ndarray) -> Any:
        """Return the module's output for one array of inputs, without the hooks."""
        return self._network.infer(inputs)


class Network:
    """A torch module with weights on a device, in evaluation mode; numpy arrays in and out."""

    def __init__(self, module: Any, weights: str, device: str) -> None:
        self._torch = torch_on(device)
        self._device = device
        state = _state(weights)
        _check_state(module.state_dict(), state, weights)
        module.load_state_dict(state)
        self._module = module.to(device).eval()

    def infer(self, inputs: np.ndarray, output: str = "") -> Any:
        """Return the module's output as a numpy array, or as a tuple of arrays if it has several.

        ``output`` selects one attribute of a structured output.
        """
        torch = self._torch
        with torch.inference_mode():
            tensor = torch.from_numpy(np.ascontiguousarray(inputs)).to(self._device)
            outputs = self._module(tensor)
            return _arrays(getattr(outputs, output) if output else outputs)


def made(factory: Any, arguments: Mapping[str, Any], name: str) -> Any:
    """Return ``factory(**arguments)``; raise ``BadArguments`` if they do not fit."""
    try:
        return factory(**arguments)
    except TypeError as error:
        raise BadArguments(f"{name} cannot be made from {dict(arguments)}: {error}") from error


def _arrays(outputs: Any) -> Any:
    if isinstance(outputs, tuple | list):
        return tuple(_arrays(output) for output in outputs)
    return outputs.cpu().numpy()


def _state(weights: str) -> Mapping[str, Any]:
    invalid = library("safetensors").SafetensorError
    try:
        state: Mapping[str, Any] = library("safetensors.torch").load_file(weights)
    except invalid as error:
        raise BadWeights(f"{weights!r} is no safetensors file: {error}") from error
    return state


def _check_state(wanted: Mapping[str, Any], found: Mapping[str, Any], weights: str) -> None:
    wrong = [f"{name} is missing" for name in wanted if name not in found]
    wrong += [f"{name} is not of this module" for name in found if name not in wanted]
    wrong += [
        f"{name} is {tuple(found[name].shape)}, not {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise BadWeights(
            f"weights {weights!r} do not fit the module: {wrong[0]}{more}; use the arguments they "
            f"were trained with, or train again"
        )
