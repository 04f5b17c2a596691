"""Locate and read the digits of an envelope, on Ray Serve."""

from itertools import islice

import numpy as np
from google.protobuf.wrappers_pb2 import BytesValue
from postcode.locate import Components
from postcode.pipeline import join
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from operators.models.onnx_model import OnnxModel


@serve.deployment(max_ongoing_requests=64, max_queued_requests=64)
class Read:
    def __init__(self):
        self._model = OnnxModel(
            "weights/read-mlp.onnx", before="postcode.read:pixels", after="postcode.read:digits"
        )
        self._model.load("cpu")

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.001)
    async def __call__(self, envelopes: list[list[np.ndarray]]) -> list[str]:
        digits = iter(self._model.predict([crop for crops in envelopes for crop in crops]))
        return [join([*islice(digits, len(crops))]) for crops in envelopes]


@serve.deployment(max_ongoing_requests=64, max_queued_requests=64)
class Locate:
    def __init__(self, read):
        self._read = read
        self._model = Components()

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.001)
    async def _predict(self, images: list[bytes]) -> list[list[np.ndarray]]:
        return self._model.predict(images)

    async def _both(self, image: bytes) -> bytes:
        return (await self._read.remote(await self._predict(image))).encode()

    async def __call__(self, request: Request) -> Response:
        return Response(await self._both(await request.body()))

    async def Infer(self, message: BytesValue) -> BytesValue:
        return BytesValue(value=await self._both(message.value))


app = Locate.bind(Read.bind())
