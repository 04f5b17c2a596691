"""The tensors of a model, as it states them: MLflow's ``MLmodel``, or the graph of an ONNX file."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from headrace.errors import PipelineError
from headrace.model_registry.references import PICKLED, leaves_folder
from headrace.model_registry.signature import Signature, TensorSpec
from operators.models.libraries import library

ONNX = ".onnx"
# NumPy's names, and ONNX' element types, in the Open Inference Protocol's.
_NUMPY = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16",
    "float32": "FP32", "float64": "FP64", "str": "BYTES", "bytes": "BYTES",
}  # fmt: skip
_ONNX = {"float": "FP32", "double": "FP64", "float16": "FP16", "string": "BYTES"}


def mlmodel_file(text: str, reference: str) -> str:
    """Return the name of the only model file that an ``MLmodel`` names, in its folder, and that is
    no pickle.

    Raises ``PipelineError`` without one, or with several.
    """
    flavors = _mlmodel(text, reference).get("flavors")
    rows = flavors.values() if isinstance(flavors, Mapping) else ()
    named = dict.fromkeys(
        str(each["data"]) for each in rows if isinstance(each, Mapping) and "data" in each
    )
    found = [name for name in named if Path(name).suffix and Path(name).suffix not in PICKLED]
    if len(found) == 1 and not leaves_folder(found[0]):
        return found[0]
    what = f"files {', '.join(found)}" if found else "no file that this reads"
    raise PipelineError(
        f"the MLmodel of {reference} names {what}; write the file behind the reference, as in "
        f"{reference}/model.onnx (safetensors, ONNX or LightGBM text, never pickles)"
    )


def mlmodel_signature(text: str, reference: str) -> Signature | None:
    """Return the tensors of an ``MLmodel``; None if it has none (columns of a table, say).

    Raises ``PipelineError`` for a signature that MLflow does not write.
    """
    stated = _mlmodel(text, reference).get("signature") or {}
    try:
        return _signature(stated)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise PipelineError(
            f"the MLmodel of {reference} has a signature that is not as MLflow writes it "
            f"({type(error).__name__}: {error}); log the model again with one"
        ) from error


def _signature(stated: Mapping[str, Any]) -> Signature | None:
    inputs, outputs = (json.loads(stated.get(side) or "[]") for side in ("inputs", "outputs"))
    if not inputs or not outputs:
        return None
    if any(each.get("type") != "tensor" for each in (*inputs, *outputs)):
        return None
    return Signature(tuple(map(_mlflow_tensor, inputs)), tuple(map(_mlflow_tensor, outputs)))


def _mlmodel(text: str, reference: str) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(text) or {}
    except (RecursionError, ValueError, yaml.YAMLError) as error:
        raise PipelineError(f"the MLmodel of {reference} is no YAML: {error}") from error
    if not isinstance(found, Mapping):
        raise PipelineError(f"the MLmodel of {reference} is no mapping; log the model again")
    return found


def _mlflow_tensor(row: Mapping[str, Any]) -> TensorSpec:
    spec = row["tensor-spec"]
    datatype = _NUMPY.get(spec["dtype"], spec["dtype"])
    return TensorSpec(str(row.get("name", "")), datatype, tuple(map(int, spec["shape"])))


def onnx_signature(path: Path) -> Signature:
    """Return the inputs and outputs of an ONNX file; raises ``MissingExtra`` without onnxruntime,
    ``PipelineError`` for another file."""
    runtime = library("onnxruntime")
    errors = runtime.capi.onnxruntime_pybind11_state
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except (errors.Fail, errors.InvalidGraph, errors.InvalidProtobuf) as error:
        raise PipelineError(f"{path} is no ONNX model: {error}") from error
    return Signature(_onnx_tensors(session.get_inputs()), _onnx_tensors(session.get_outputs()))


def _onnx_tensors(nodes: Iterable[Any]) -> tuple[TensorSpec, ...]:
    def shape(sizes: Sequence[Any]) -> tuple[int, ...]:
        return tuple(size if isinstance(size, int) else -1 for size in sizes)

    def datatype(kind: str) -> str:
        element = kind.removeprefix("tensor(").removesuffix(")")
        return _ONNX.get(element) or _NUMPY.get(element, element)

    return tuple(TensorSpec(n.name, datatype(n.type), shape(n.shape)) for n in nodes)
