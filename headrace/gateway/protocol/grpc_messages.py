"""Inference requests and responses of the Open Inference Protocol over gRPC. Pure.

Tensors come in their typed contents or all in ``raw_input_contents``; answers are always raw, as
Triton's are.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from headrace.gateway.protocol.requests import InferRequest, InferResponse, checked_id
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.protocol.tensors import (
    BYTES,
    DTYPES,
    Tensor,
    bad,
    binary,
    bytes_tensor,
    check_shape,
    from_binary,
    number_tensor,
)

# The field of typed contents by datatype; FP16 has none.
_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}


def parsed(message: Any) -> InferRequest:
    """Return the request in a ``ModelInferRequest``; raise ``Unserved`` if it is invalid."""
    given, raw = message.inputs, message.raw_input_contents
    name, parameters, outputs = message.id, message.parameters, message.outputs
    if raw and len(raw) != len(given):
        raise Unserved(
            Ending.BAD_REQUEST,
            f"the request has {len(given)} inputs, but {len(raw)} raw_input_contents; "
            "send the contents of all inputs raw, or of none",
        )
    inputs = map(_raw, given, raw) if raw else map(_typed, given)
    return InferRequest(
        inputs=tuple(inputs),
        id=checked_id(name) if name else "",
        parameters=_parameters(parameters) if parameters else {},
        outputs=tuple(output.name for output in outputs) if outputs else (),
    )


def _parameters(said: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name in said:  # its items() are Python code
        value = said[name]
        field = value.WhichOneof("parameter_choice")
        if field is not None:
            found[name] = getattr(value, field)
    return found


def _raw(each: Any, elements: bytes) -> Tensor:
    return from_binary(each.name, each.datatype, each.shape, elements)


def _typed(each: Any) -> Tensor:
    name, datatype, shape = each.name, each.datatype, list(each.shape)
    count = check_shape(name, datatype, shape)
    if datatype not in _CONTENTS:
        raise bad(name, f"is {datatype}, which typed contents cannot hold; send it raw")
    filled = [field.name for field, _ in each.contents.ListFields()]
    if any(field != _CONTENTS[datatype] for field in filled):
        raise bad(name, f"is {datatype}, but has {filled[0]}; fill {_CONTENTS[datatype]} only")
    held = getattr(each.contents, _CONTENTS[datatype])
    if len(held) != count:
        raise bad(name, f"has {len(held)} elements, but {count} by its shape {shape}")
    if datatype == BYTES:
        return bytes_tensor(name, list(held), shape)
    try:
        return number_tensor(
            name, datatype, np.array(list(held), dtype=DTYPES[datatype]).reshape(shape)
        )
    except OverflowError:
        raise bad(name, f"holds a number beyond the range of {datatype}") from None


def rendered(response: InferResponse, messages: SimpleNamespace) -> Any:
    """Return the ``ModelInferResponse`` of a response; ``messages`` are the message classes."""
    made = messages.ModelInferResponse(model_name=response.model, model_version="1", id=response.id)
    for name, value in response.parameters.items():
        made.parameters[name].bool_param = value
    for each in response.outputs:
        made.outputs.add(name=each.name, datatype=each.datatype, shape=each.shape)
        made.raw_output_contents.append(binary(each))
    return made
