"""A gRPC server that answers at once: the least time of a call, which no gateway can undercut.

    python -m benchmarks.bare_grpc

It serves ``ModelInfer`` with ``grpc.aio`` in a process of its own, on the gateway's event loop. A
call decodes the request and answers with its bytes.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.gateway.event_loop import gateway_loop
from headrace.gateway.gateway_role import GRPC_EXPERIMENTS
from headrace.gateway.protocol.descriptors import SERVICE, message_classes, pool
from headrace.roles.heap import tune_heap

M = message_classes(pool())


@contextmanager
def bare_server() -> Iterator[int]:
    """Run the server during the block; yield its port."""
    command = [sys.executable, "-m", "benchmarks.bare_grpc"]
    env = {**os.environ, "GRPC_EXPERIMENTS": GRPC_EXPERIMENTS}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def _answered(request: Any, _: Any) -> Any:
    tensor = M.ModelInferResponse.InferOutputTensor(name="output", datatype="BYTES", shape=[1])
    return M.ModelInferResponse(
        model_name=request.model_name, model_version="1", outputs=[tensor],
        raw_output_contents=request.raw_input_contents,
    )  # fmt: skip


async def _serve() -> None:
    import grpc  # reads its settings from the environment

    method = grpc.unary_unary_rpc_method_handler(
        _answered,
        request_deserializer=M.ModelInferRequest.FromString,
        response_serializer=M.ModelInferResponse.SerializeToString,
    )
    server = grpc.aio.server()
    service = grpc.method_handlers_generic_handler(SERVICE, {"ModelInfer": method})
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    tune_heap()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=gateway_loop) as runner:
        runner.run(_serve())
