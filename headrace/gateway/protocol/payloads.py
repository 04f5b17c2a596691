"""Queries' payloads from tensors, and tensors from results, by the pipeline's signature. Pure.

Without a signature a query is one BYTES element, the payload itself (for a pipeline with ``input:
avro`` or ``confluent`` its JSON), and an answer is one BYTES element, the result as JSON. With a
signature a payload is a dict of the inputs: arrays, or for BYTES the bytes of one element or a list
of texts. A result is such a dict of the outputs, or the value of the only output.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.protocol.tensors import (
    BYTES,
    DTYPES,
    Tensor,
    bad,
    bytes_tensor,
    number_tensor,
)
from headrace.model_registry.signature import PLAIN, Signature, TensorSpec
from schemas.codec.json_form import value_to_json
from schemas.codec.values import CodecError
from schemas.records import Value

RAW = "raw"


def payload_of(inputs: Sequence[Tensor], signature: Signature | None, form: str) -> Value:
    """Return the payload of a query; ``form`` is the pipeline file's ``input``.

    Raises ``Unserved`` for tensors that do not fit.
    """
    if signature is None:
        element = _only_element(inputs)
        return element if form == RAW else _from_json(element)
    found = _by_name(inputs, signature)
    values = {spec.name: _input(found[spec.name], spec) for spec in signature.inputs}
    return next(iter(values.values())) if form == RAW else values


def _only_element(inputs: Sequence[Tensor]) -> bytes:
    if len(inputs) != 1 or inputs[0].datatype != BYTES or len(inputs[0].elements) != 1:
        raise Unserved(
            Ending.BAD_REQUEST,
            "a query of this pipeline is one BYTES tensor of shape [1]; send that, or add a "
            "signature to the pipeline file",
        )
    element: bytes = inputs[0].elements[0]
    if not element:
        if not inputs[0].name:  # a raw body
            raise Unserved(Ending.BAD_REQUEST, "the body is empty; a query needs a payload")
        raise bad(inputs[0].name, "is empty; a query needs a payload")
    return element


def _from_json(element: bytes) -> Value:
    try:
        value: Value = json.loads(element)
        return value
    except (RecursionError, ValueError) as error:
        raise Unserved(
            Ending.BAD_REQUEST, f"the payload of this pipeline is JSON, but this is none: {error}"
        ) from None


def _by_name(inputs: Sequence[Tensor], signature: Signature) -> dict[str, Tensor]:
    wanted = [spec.name for spec in signature.inputs]
    names = [tensor.name for tensor in inputs]
    if len(inputs) == len(wanted) == 1 and not names[0]:
        names = wanted  # a raw body has no name
    if sorted(names) != sorted(wanted):
        raise Unserved(
            Ending.BAD_REQUEST,
            f"the request has inputs {', '.join(names)[:200] or '(none)'}; this pipeline takes "
            f"{', '.join(wanted)}",
        )
    return dict(zip(names, inputs, strict=True))


def _input(tensor: Tensor, spec: TensorSpec) -> Value:
    if tensor.datatype != spec.datatype or not spec.fits(tensor.shape):
        raise bad(
            spec.name,
            f"is {tensor.datatype} of shape {list(tensor.shape)}; this pipeline takes "
            f"{spec.datatype} of {list(spec.shape)}",
        )
    elements = tensor.elements
    if isinstance(elements, np.ndarray):
        return elements
    if spec.shape == (1,):
        return elements[0]
    try:
        return [element.decode() for element in elements]
    except UnicodeDecodeError:
        raise bad(spec.name, "has several elements, which must be UTF-8") from None


# ---------------------------------------------------------------------- results


def check_wanted(signature: Signature | None, wanted: Sequence[str]) -> None:
    """Raise ``Unserved`` for the name of an output that the pipeline does not have."""
    known = [spec.name for spec in (signature or PLAIN).outputs]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise Unserved(
            Ending.BAD_REQUEST,
            f"there is no output {unknown[0][:80]!r}; known are {', '.join(known)}",
        )


def outputs_of(result: Value, signature: Signature | None, wanted: Sequence[str]) -> list[Tensor]:
    """Return the wanted outputs (none named: all), in the signature's order.

    Raises ``Unserved``: the request's fault for an unknown output, the pipeline's for a result
    that does not fit its signature.
    """
    if wanted:
        check_wanted(signature, wanted)
    specs = (signature or PLAIN).outputs
    if signature is None:
        return [_as_json(result)]
    values = _named(result, specs)
    return [_output(values[s.name], s) for s in specs if not wanted or s.name in wanted]


def _as_json(result: Value) -> Tensor:
    try:
        return bytes_tensor(PLAIN.outputs[0].name, [value_to_json(result).encode()], [1])
    except CodecError as error:
        raise Unserved(Ending.FAILED, str(error)) from None


def _named(result: Value, specs: Sequence[TensorSpec]) -> Mapping[str, Any]:
    names = [spec.name for spec in specs]
    if isinstance(result, dict) and set(names) <= set(result):
        return result
    if len(names) == 1:
        return {names[0]: result}
    found = sorted(map(str, result)) if isinstance(result, dict) else type(result).__name__
    raise _misfit(f"the result is {found}, but the signature has the outputs {names}")


def _output(value: Any, spec: TensorSpec) -> Tensor:
    tensor = _texts(value, spec) if spec.datatype == BYTES else _array(value, spec)
    if not spec.fits(tensor.shape):
        raise _misfit(
            f"output {spec.name} has shape {list(tensor.shape)}, but the signature "
            f"{list(spec.shape)}"
        )
    return tensor


def _texts(value: Any, spec: TensorSpec) -> Tensor:
    elements = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str | bytes) for each in elements):
        raise _misfit(f"output {spec.name} is BYTES, but the result holds other values than text")
    coded = [each.encode() if isinstance(each, str) else each for each in elements]
    known = math.prod(max(size, 1) for size in spec.shape)
    fixed = -1 not in spec.shape and known == len(coded)
    return bytes_tensor(spec.name, coded, spec.shape if fixed else [len(coded)])


def _array(value: Any, spec: TensorSpec) -> Tensor:
    try:
        array = _from_json_form(value) if isinstance(value, dict) else np.asarray(value)
        cast = _cast(array, DTYPES[spec.datatype])
    except (LookupError, OverflowError, TypeError, ValueError) as error:
        raise _misfit(f"output {spec.name} is no {spec.datatype} tensor: {error}") from None
    scalar = cast.ndim == 0 and spec.fits((1,))
    return number_tensor(spec.name, spec.datatype, cast.reshape(1) if scalar else cast)


def _cast(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the array with another type of the same kind; whole numbers are of one kind, and an
    array without elements is of any.

    Raises ``OverflowError`` for a number beyond the range of the type, ``TypeError`` for an array
    of another kind.
    """
    if not array.size:
        return array.astype(dtype)
    whole = array.dtype.kind in "iu" and dtype.kind in "iu"
    if whole:
        least, most, held = int(array.min()), int(array.max()), np.iinfo(dtype)
        if least < held.min or most > held.max:
            raise OverflowError(f"it holds {least if least < held.min else most}")
    with np.errstate(over="ignore"):
        cast = array.astype(dtype, casting="unsafe" if whole else "same_kind")
    if dtype.kind == "f" and (np.isfinite(array) & ~np.isfinite(cast)).any():
        raise OverflowError("it holds a number beyond its range")
    return cast


def _from_json_form(value: Mapping[str, Any]) -> np.ndarray:
    """Return an array that came over a results topic in JSON (schemas/codec/json_form.py)."""
    return np.array(value["data"], dtype=value["dtype"]).reshape(value["shape"])


def _misfit(what: str) -> Unserved:
    return Unserved(Ending.FAILED, f"{what}; correct the pipeline's combine or its signature")


# ---------------------------------------------------------------------- metadata

# The name of a datatype in a model's configuration.
_CONFIG_TYPES = {BYTES: "TYPE_STRING"} | {name: f"TYPE_{name}" for name in DTYPES}


def model_metadata(name: str, signature: Signature | None) -> dict[str, Any]:
    """Return the metadata of a model, as JSON."""
    shown = signature or PLAIN
    return {
        "name": name, "versions": ["1"], "platform": "headrace",
        "inputs": [_row(spec) for spec in shown.inputs],
        "outputs": [_row(spec) for spec in shown.outputs],
    }  # fmt: skip


def _row(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def configuration(name: str, signature: Signature | None) -> dict[str, Any]:
    """Return the configuration of a model, as Triton's JSON; one request is one query, without a
    batch dimension."""
    shown = signature or PLAIN
    return {
        "name": name, "platform": "headrace", "backend": "headrace", "max_batch_size": 0,
        "input": [_config_row(spec) for spec in shown.inputs],
        "output": [_config_row(spec) for spec in shown.outputs],
    }  # fmt: skip


def _config_row(spec: TensorSpec) -> dict[str, Any]:
    return {
        "name": spec.name, "data_type": _CONFIG_TYPES[spec.datatype], "dims": list(spec.shape),
    }  # fmt: skip
