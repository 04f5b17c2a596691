"""Locate and read the digits of an envelope, as one model on MLServer."""

from itertools import islice

from mlserver import MLModel
from mlserver.codecs import Base64Codec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse
from postcode.locate import Components
from postcode.pipeline import join

from operators.models.onnx_model import OnnxModel


class Both(MLModel):
    async def load(self) -> bool:
        self._locate = Components()
        self._read = OnnxModel(
            "weights/read-mlp.onnx", before="postcode.read:pixels", after="postcode.read:digits"
        )
        self._read.load("cpu")
        return True

    async def predict(self, request: InferenceRequest) -> InferenceResponse:
        envelopes = self._locate.predict(Base64Codec.decode_input(request.inputs[0]))
        digits = iter(self._read.predict([crop for crops in envelopes for crop in crops]))
        texts = [join([*islice(digits, len(crops))]) for crops in envelopes]
        output = StringCodec.encode_output("postcode", texts)
        return InferenceResponse(model_name=self.name, outputs=[output])
