"""A transformers architecture with safetensors weights as an operator."""

from collections.abc import Mapping
from typing import Any, ClassVar

from operators.models.hooks import hooks
from operators.models.libraries import library, torch_on
from operators.models.model_errors import BadReference
from operators.models.module_references import nearest_hint
from operators.models.torch_module import Network, made
from operators.models.weights import SAFETENSORS, weights_file
from schemas.records import Value


class TransformersModel:
    """The class ``architecture`` of transformers, such as "ViTForImageClassification".

    ``config`` holds the arguments of its configuration class; nothing is downloaded. ``output``
    is the field of the model's output to return. ``before`` and ``after`` are hooks,
    "module:function" (``hooks.Hooks``).
    """

    libraries: ClassVar = ("torch", "transformers", "safetensors.torch")

    @staticmethod
    def preload(arguments: Mapping[str, Any]) -> None:
        """Import what transformers would import at the architecture's first use."""
        getattr(library("transformers"), arguments["architecture"])

    def __init__(
        self,
        architecture: str,
        weights: str,
        config: Mapping[str, Any] | None = None,
        output: str = "logits",
        before: str = "",
        after: str = "",
    ) -> None:
        self._architecture = architecture
        self._config = dict(config or {})
        self._weights = weights_file(weights, SAFETENSORS)
        self._output = output
        self._hooks = hooks(before, after)

    def load(self, device: str) -> None:
        """Build the model on ``device``, cpu or cuda:N, with its weights."""
        torch_on(device)
        module = transformers_module(self._architecture, self._config)
        self._network = Network(module, str(self._weights), device)

    def predict(self, batch: list[Value]) -> list[Any]:
        """Return one output per value."""
        return self._hooks.run(batch, lambda inputs: self._network.infer(inputs, self._output))


def transformers_module(architecture: str, config: Mapping[str, Any]) -> Any:
    """Return the untrained torch module; raise ``BadReference`` or ``BadArguments``."""
    transformers = library("transformers")
    built: Any = getattr(transformers, architecture, None)
    if not hasattr(built, "config_class"):
        known = [name for name in dir(transformers) if "For" in name or name.endswith("Model")]
        raise BadReference(
            f"transformers has no model {architecture!r}{nearest_hint(architecture, known)}"
        )
    name = f"transformers' {architecture}"
    return made(
        built, {"config": made(built.config_class, config, f"the configuration of {name}")}, name
    )
