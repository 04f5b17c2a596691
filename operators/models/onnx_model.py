"""An ONNX file, run by onnxruntime, as an operator."""

from typing import Any, ClassVar

import numpy as np

from operators.calls.device_faults import out_of_memory
from operators.models.hooks import hooks
from operators.models.libraries import cuda_index, library
from operators.models.model_errors import BadDevice, BadWeights
from operators.models.weights import ONNX, weights_file
from schemas.records import Value

CUDA = "CUDAExecutionProvider"


class OnnxModel:
    """The graph in ``weights``, which must have one input, batch axis first.

    ``before`` and ``after`` are hooks, "module:function" (``hooks.Hooks``).
    """

    libraries: ClassVar = ("onnxruntime",)

    def __init__(self, weights: str, before: str = "", after: str = "") -> None:
        self._weights = weights_file(weights, ONNX)
        self._hooks = hooks(before, after)

    def load(self, device: str) -> None:
        """Open a session on ``device``, cpu or cuda:N, with one thread.

        Raise ``BadDevice`` if onnxruntime cannot use the device.
        """
        runtime = library("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        providers = _providers(runtime, device)
        errors = runtime.capi.onnxruntime_pybind11_state
        try:
            self._session = runtime.InferenceSession(
                str(self._weights), sess_options=options, providers=providers
            )
        except (errors.Fail, errors.InvalidGraph, errors.InvalidProtobuf) as error:
            if out_of_memory(error):
                raise
            raise BadWeights(f"{str(self._weights)!r} is no ONNX model: {error}") from error
        self._session.disable_fallback()
        _check_provider(self._session, device)
        inputs = [node.name for node in self._session.get_inputs()]
        if len(inputs) != 1:
            raise BadWeights(f"{str(self._weights)!r} has inputs {inputs}; export it with one")
        self._input = inputs[0]

    def predict(self, batch: list[Value]) -> list[Any]:
        """Return one output per value."""
        return self._hooks.run(batch, self._infer)

    def _infer(self, inputs: np.ndarray) -> Any:
        outputs = self._session.run(None, {self._input: inputs})
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _providers(runtime: Any, device: str) -> list[Any]:
    if device == "cpu":
        return ["CPUExecutionProvider"]
    index = cuda_index(device)
    if CUDA not in runtime.get_available_providers():
        raise BadDevice(
            f"device is {device!r}, but this onnxruntime has no CUDA; install onnxruntime-gpu or "
            f"name cpu"
        )
    return [(CUDA, {"device_id": index})]


def _check_provider(session: Any, device: str) -> None:
    """Raise ``BadDevice`` if onnxruntime opened a session on the CPU in place of a GPU.

    It only logs a warning then, as for a missing library of CUDA's or a device that is not there.
    """
    if device != "cpu" and CUDA not in session.get_providers():
        raise BadDevice(
            f"onnxruntime cannot use {device!r} and would run on cpu; its own words are in the log "
            f"above: install CUDA and cuDNN as onnxruntime-gpu needs them, or name cpu"
        )
