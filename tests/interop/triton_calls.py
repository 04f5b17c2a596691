"""Call a gateway with tritonclient and grpcio's reflection client; run in their environment.

python triton_calls.py HTTP_ADDRESS GRPC_ADDRESS     prints JSON
"""

import json
import sys
from typing import Any

import grpc
import numpy as np
import tritonclient.grpc
import tritonclient.http
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

WORDS, SUMS = "worded", "sums"


def text_of(kind: Any, text: bytes) -> Any:
    made = kind.InferInput("input", [1], "BYTES")
    made.set_data_from_numpy(np.array([text], dtype=object))
    return made


def numbers_of(kind: Any) -> Any:
    made = kind.InferInput("numbers", [2, 3], "FP32")
    made.set_data_from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    return made


def told(call: Any) -> list[str]:
    """Return the status and message of a call that fails."""
    try:
        call()
    except InferenceServerException as error:
        return [str(error.status()), error.message()]
    raise AssertionError("it did not fail")


def seen_by(kind: Any, address: str) -> dict[str, Any]:
    client = kind.InferenceServerClient(address)
    output = kind.InferRequestedOutput("sum")
    words = client.infer(WORDS, [text_of(kind, b"hello world")], request_id="mine", timeout=10**7)
    sums = client.infer(SUMS, [numbers_of(kind)], outputs=[output])
    seen = {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready(WORDS, "1"),
        "words": words.as_numpy("output")[0].decode(),
        "id": words.get_response()["id"] if kind is tritonclient.http else words.get_response().id,
        "sum": sums.as_numpy("sum").tolist(),
        "unknown": told(lambda: client.infer("nobody", [text_of(kind, b"x")])),
        "late": told(lambda: client.infer(WORDS, [text_of(kind, b"x")], timeout=1)),
    }
    pending = [client.async_infer(WORDS, [text_of(kind, b"w%d" % n)]) for n in range(20)] if (
        kind is tritonclient.http
    ) else []  # fmt: skip
    seen["async"] = [each.get_result().as_numpy("output")[0].decode() for each in pending]
    return seen


def over_http(address: str) -> dict[str, Any]:
    client = tritonclient.http.InferenceServerClient(address)
    packed = client.infer(
        WORDS, [text_of(tritonclient.http, b"packed")], request_compression_algorithm="gzip",
        response_compression_algorithm="deflate",
    )  # fmt: skip
    as_json = tritonclient.http.InferRequestedOutput("sum", binary_data=False)
    plain = client.infer(SUMS, [numbers_of(tritonclient.http)], outputs=[as_json])
    return {
        **seen_by(tritonclient.http, address),
        "packed": packed.as_numpy("output")[0].decode(),
        "json": plain.as_numpy("sum").tolist(),
        "metadata": client.get_model_metadata(SUMS),
        "config": client.get_model_config(SUMS),
        "server": client.get_server_metadata(),
        "index": client.get_model_repository_index(),
    }


def over_grpc(address: str) -> dict[str, Any]:
    client = tritonclient.grpc.InferenceServerClient(address)
    as_json = {"as_json": True}
    return {
        **seen_by(tritonclient.grpc, address),
        "metadata": client.get_model_metadata(SUMS, **as_json),
        "config": client.get_model_config(SUMS, **as_json),
        "server": client.get_server_metadata(**as_json),
        "index": client.get_model_repository_index(**as_json),
    }


def reflected(address: str) -> dict[str, Any]:
    """Return the services that reflection shows, and the differences of its messages from
    tritonclient's."""
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        service = pool.FindServiceByName("inference.GRPCInferenceService")
        kinds = [kind for m in service.methods for kind in (m.input_type, m.output_type)]
        known: dict[str, list[str]] = {}
        for kind in kinds:
            differences(kind, known)
        return {
            "services": sorted(database.get_services()),
            "methods": [method.name for method in service.methods],
            "compared": len(known),
            "differences": [each for found in known.values() for each in found],
        }


def differences(mine: Any, known: dict[str, list[str]]) -> None:
    if mine.full_name in known:
        return
    known[mine.full_name] = found = []
    theirs = theirs_of(mine)
    for field in mine.fields:
        other = theirs.fields_by_number.get(field.number)
        same = other is not None and (other.name, other.type, other.is_repeated) == (
            field.name, field.type, field.is_repeated,
        )  # fmt: skip
        if not same:
            found.append(f"{mine.full_name}.{field.name}")
        if field.message_type is not None:
            differences(field.message_type, known)


def theirs_of(mine: Any) -> Any:
    if mine.containing_type is not None:
        return theirs_of(mine.containing_type).nested_types_by_name[mine.name]
    module = service_pb2 if hasattr(service_pb2, mine.name) else model_config_pb2
    return getattr(module, mine.name).DESCRIPTOR


if __name__ == "__main__":
    http, grpc_address = sys.argv[1:]
    print(
        json.dumps(
            {
                "http": over_http(http),
                "grpc": over_grpc(grpc_address),
                "reflection": reflected(grpc_address),
            }
        )
    )
