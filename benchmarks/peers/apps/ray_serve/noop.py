"""Two stages that do nothing, on Ray Serve."""

from google.protobuf.wrappers_pb2 import BytesValue
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(max_ongoing_requests=64, max_queued_requests=64)
class Second:
    @serve.batch(max_batch_size=256, batch_wait_timeout_s=0.001)
    async def __call__(self, payloads: list[bytes]) -> list[bytes]:
        return payloads


@serve.deployment(max_ongoing_requests=64, max_queued_requests=64)
class First:
    def __init__(self, second):
        self._second = second

    @serve.batch(max_batch_size=256, batch_wait_timeout_s=0.001)
    async def _predict(self, payloads: list[bytes]) -> list[bytes]:
        return payloads

    async def _both(self, payload: bytes) -> bytes:
        return await self._second.remote(await self._predict(payload))

    async def __call__(self, request: Request) -> Response:
        return Response(await self._both(await request.body()))

    async def Infer(self, message: BytesValue) -> BytesValue:
        return BytesValue(value=await self._both(message.value))


app = First.bind(Second.bind())
