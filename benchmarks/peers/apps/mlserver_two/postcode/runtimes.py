"""Locate and read the digits of an envelope, as two models on MLServer."""

from itertools import islice

import numpy as np
from mlserver import MLModel
from mlserver.codecs import Base64Codec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse
from postcode.crops import SIDE
from postcode.locate import Components
from postcode.pipeline import join

from operators.models.onnx_model import OnnxModel


class Locate(MLModel):
    async def load(self) -> bool:
        self._model = Components()
        return True

    async def predict(self, request: InferenceRequest) -> InferenceResponse:
        found = self._model.predict(Base64Codec.decode_input(request.inputs[0]))
        packed = [b"".join(crop.tobytes() for crop in crops) for crops in found]
        output = Base64Codec.encode_output("crops", packed)
        return InferenceResponse(model_name=self.name, outputs=[output])


class Read(MLModel):
    async def load(self) -> bool:
        self._model = OnnxModel(
            "weights/read-mlp.onnx", before="postcode.read:pixels", after="postcode.read:digits"
        )
        self._model.load("cpu")
        return True

    async def predict(self, request: InferenceRequest) -> InferenceResponse:
        packed = Base64Codec.decode_input(request.inputs[0])
        envelopes = [np.frombuffer(each, np.uint8).reshape(-1, SIDE, SIDE) for each in packed]
        digits = iter(self._model.predict([crop for crops in envelopes for crop in crops]))
        texts = [join([*islice(digits, len(crops))]) for crops in envelopes]
        output = StringCodec.encode_output("postcode", texts)
        return InferenceResponse(model_name=self.name, outputs=[output])
