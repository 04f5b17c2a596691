"""A stage that does nothing, on MLServer."""

from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Pass(MLModel):
    async def predict(self, request: InferenceRequest) -> InferenceResponse:
        tensor = request.inputs[0]
        output = ResponseOutput(
            name="payload", shape=tensor.shape, datatype=tensor.datatype, data=tensor.data
        )
        return InferenceResponse(model_name=self.name, outputs=[output])
