"""A torchvision architecture with safetensors weights as an operator."""

from collections.abc import Mapping
from typing import Any, ClassVar

from operators.models.hooks import hooks
from operators.models.libraries import library, torch_on
from operators.models.model_errors import BadReference
from operators.models.module_references import nearest_hint
from operators.models.torch_module import Network, made
from operators.models.weights import SAFETENSORS, weights_file
from schemas.records import Value


class TorchvisionModel:
    """A model of ``torchvision.models.get_model``, such as "mobilenet_v2".

    ``arguments`` shape it (``num_classes``, ``width_mult`` ...); nothing is downloaded.
    ``before`` and ``after`` are hooks, "module:function" (``hooks.Hooks``).
    """

    libraries: ClassVar = ("torch", "torchvision.models", "safetensors.torch")

    def __init__(
        self,
        architecture: str,
        weights: str,
        arguments: Mapping[str, Any] | None = None,
        before: str = "",
        after: str = "",
    ) -> None:
        self._architecture = architecture
        self._arguments = dict(arguments or {})
        self._weights = weights_file(weights, SAFETENSORS)
        self._hooks = hooks(before, after)

    def load(self, device: str) -> None:
        """Build the model on ``device``, cpu or cuda:N, with its weights."""
        torch_on(device)
        module = torchvision_module(self._architecture, self._arguments)
        self._network = Network(module, str(self._weights), device)

    def predict(self, batch: list[Value]) -> list[Any]:
        """Return one output per value."""
        return self._hooks.run(batch, self._network.infer)


def torchvision_module(architecture: str, arguments: Mapping[str, Any]) -> Any:
    """Return the untrained torch module; raise ``BadReference`` or ``BadArguments``."""
    models = library("torchvision.models")
    known = models.list_models()
    if architecture not in known:
        raise BadReference(
            f"torchvision has no {architecture!r}{nearest_hint(architecture, known)}"
        )
    build = models.get_model_builder(architecture)
    return made(build, {"weights": None, **arguments}, f"torchvision's {architecture}")
