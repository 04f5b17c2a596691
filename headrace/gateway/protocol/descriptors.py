"""The messages and the service of the Open Inference Protocol in protocol buffers.

The classes are built at start from the table below, so that no generated code is kept and no
compiler is needed (docs/decisions/0014). Names and numbers are those of the protocol's
``grpc_service.proto`` and, for a model's configuration, of Triton's ``model_config.proto``; fields
that Headrace neither reads nor writes are left out, and protocol buffers skip them.
"""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
FILE = "headrace/open_inference.proto"

# Message: its fields as NUMBER NAME TYPE. [T] is repeated, {T} a map from texts.
_INFER_PARAMETERS = "parameters {InferParameter}"
_TENSOR = ("1 name string", "2 datatype string", "3 shape [int64]")
MESSAGES: dict[str, tuple[str, ...]] = {
    "ServerLiveRequest": (),
    "ServerLiveResponse": ("1 live bool",),
    "ServerReadyRequest": (),
    "ServerReadyResponse": ("1 ready bool",),
    "ModelReadyRequest": ("1 name string", "2 version string"),
    "ModelReadyResponse": ("1 ready bool",),
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": ("1 name string", "2 version string", "3 extensions [string]"),
    "ModelMetadataRequest": ("1 name string", "2 version string"),
    "ModelMetadataResponse": (
        "1 name string", "2 versions [string]", "3 platform string",
        "4 inputs [ModelMetadataResponse.TensorMetadata]",
        "5 outputs [ModelMetadataResponse.TensorMetadata]",
    ),
    "ModelMetadataResponse.TensorMetadata": _TENSOR,
    "InferParameter": (
        "1 bool_param bool", "2 int64_param int64", "3 string_param string",
        "4 double_param double", "5 uint64_param uint64",
    ),
    "InferTensorContents": (
        "1 bool_contents [bool]", "2 int_contents [int32]", "3 int64_contents [int64]",
        "4 uint_contents [uint32]", "5 uint64_contents [uint64]", "6 fp32_contents [float]",
        "7 fp64_contents [double]", "8 bytes_contents [bytes]",
    ),
    "ModelInferRequest": (
        "1 model_name string", "2 model_version string", "3 id string", f"4 {_INFER_PARAMETERS}",
        "5 inputs [ModelInferRequest.InferInputTensor]",
        "6 outputs [ModelInferRequest.InferRequestedOutputTensor]", "7 raw_input_contents [bytes]",
    ),
    "ModelInferRequest.InferInputTensor": (
        *_TENSOR, f"4 {_INFER_PARAMETERS}", "5 contents InferTensorContents",
    ),
    "ModelInferRequest.InferRequestedOutputTensor": ("1 name string", f"2 {_INFER_PARAMETERS}"),
    "ModelInferResponse": (
        "1 model_name string", "2 model_version string", "3 id string", f"4 {_INFER_PARAMETERS}",
        "5 outputs [ModelInferResponse.InferOutputTensor]", "6 raw_output_contents [bytes]",
    ),
    "ModelInferResponse.InferOutputTensor": (
        *_TENSOR, f"4 {_INFER_PARAMETERS}", "5 contents InferTensorContents",
    ),
    "ModelConfigRequest": ("1 name string", "2 version string"),
    "ModelConfigResponse": ("1 config ModelConfig",),
    "ModelConfig": (
        "1 name string", "2 platform string", "17 backend string", "4 max_batch_size int32",
        "5 input [ModelInput]", "6 output [ModelOutput]",
    ),
    "ModelInput": ("1 name string", "2 data_type DataType", "4 dims [int64]"),
    "ModelOutput": ("1 name string", "2 data_type DataType", "3 dims [int64]"),
    "RepositoryIndexRequest": ("1 repository_name string", "2 ready bool"),
    "RepositoryIndexResponse": ("1 models [RepositoryIndexResponse.ModelIndex]",),
    "RepositoryIndexResponse.ModelIndex": (
        "1 name string", "2 version string", "3 state string", "4 reason string",
    ),
}  # fmt: skip
ONE_OF = {"InferParameter": "parameter_choice"}  # the fields of these are alternatives
DATA_TYPES = (
    "TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64",
    "TYPE_INT8", "TYPE_INT16", "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64",
    "TYPE_STRING", "TYPE_BF16",
)  # fmt: skip
METHODS = (
    "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer",
    "ModelConfig", "RepositoryIndex",
)  # fmt: skip

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in (
        "bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64",
    )
}  # fmt: skip


def file_descriptor() -> Any:
    """Return the protocol's file descriptor, as a compiler would make it."""
    file = descriptor_pb2.FileDescriptorProto(name=FILE, package=PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    for name, fields in MESSAGES.items():
        outer, _, inner = name.rpartition(".")
        holder = made[outer].nested_type if outer else file.message_type
        message = made[name] = holder.add(name=inner)
        if name in ONE_OF:
            message.oneof_decl.add(name=ONE_OF[name])
        for field in fields:
            _add(message, name, field.split(" "))
    kinds = file.enum_type.add(name="DataType")
    for number, name in enumerate(DATA_TYPES):
        kinds.value.add(name=name, number=number)
    service = file.service.add(name=SERVICE.removeprefix(f"{PACKAGE}."))
    for method in METHODS:
        named = {"input_type": f"{method}Request", "output_type": f"{method}Response"}
        service.method.add(name=method, **{k: f".{PACKAGE}.{v}" for k, v in named.items()})
    return file


def _add(message: Any, path: str, field: Sequence[str]) -> None:
    number, name, kind = field
    added = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind[0] in "[{":
        added.label = _Field.LABEL_REPEATED
    if kind[0] == "{":
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add(entry, "", ("1", "key", "string"))
        _add(entry, "", ("2", "value", kind[1:-1]))
        kind = f"{path}.{entry.name}"
    _set_type(added, kind.strip("[]"))
    if path in ONE_OF:
        added.oneof_index = 0


def _set_type(field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_ENUM if kind == "DataType" else _Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"


def pool(others: Sequence[Any] = ()) -> Any:
    """Return a pool with the protocol's file and the serialised files of other services.

    A pool of our own: a process that has imported another package of these messages keeps both.
    """
    made = descriptor_pool.DescriptorPool()
    for file in others:
        made.AddSerializedFile(file)
    made.Add(file_descriptor())
    return made


def message_classes(pool: Any) -> SimpleNamespace:
    """Return the message classes by name."""
    return SimpleNamespace(**dict(_classes(pool)))


def _classes(pool: Any) -> Iterator[tuple[str, Any]]:
    for name in MESSAGES:
        if "." not in name:
            found = pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
            yield name, message_factory.GetMessageClass(found)
