"""Call a gateway with KServe's clients; run in their environment.

python kserve_calls.py HTTP_ADDRESS GRPC_ADDRESS     prints JSON
"""

import asyncio
import json
import sys
from typing import Any

from kserve import (
    InferenceGRPCClient,
    InferenceRESTClient,
    InferInput,
    InferRequest,
    RESTConfig,
)


async def seen(http: str, grpc_address: str) -> dict[str, Any]:
    rest = InferenceRESTClient(RESTConfig(protocol="v2", timeout=20))
    base = f"http://{http}"
    text = InferInput("input", [1], "BYTES", ["hello world"])
    over_http = await rest.infer(base, InferRequest("worded", [text]), model_name="worded")
    grpc_client = InferenceGRPCClient(url=grpc_address)
    raw = InferInput("input", [1], "BYTES", [b"over grpc"])
    over_grpc = await grpc_client.infer(InferRequest("worded", [raw]))
    return {
        "live": await rest.is_server_live(base),
        "ready": await rest.is_server_ready(base),
        "model_ready": await rest.is_model_ready(base, "worded"),
        "http": as_text(over_http.outputs[0].data[0]),
        "grpc_live": await grpc_client.is_server_live(),
        "grpc_ready": await grpc_client.is_model_ready("worded"),
        "grpc": as_text(over_grpc.outputs[0].as_numpy().reshape(-1)[0]),
    }


def as_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(seen(*sys.argv[1:]))))
