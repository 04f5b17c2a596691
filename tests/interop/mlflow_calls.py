"""Register an ONNX model as a team does with MLflow; run in its environment.

python mlflow_calls.py TRACKING_URI      prints the version that is the champion now
"""

import sys

import mlflow
import numpy as np
import onnx
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec
from onnx import TensorProto, helper


def doubling() -> onnx.ModelProto:
    """Return a graph that doubles four numbers."""
    shape = ["batch", 4]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["numbers", "two"], ["doubled"])],
        "doubling",
        [helper.make_tensor_value_info("numbers", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("doubled", TensorProto.FLOAT, shape)],
        [helper.make_tensor("two", TensorProto.FLOAT, [1], [2.0])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def main(uri: str) -> None:
    mlflow.set_tracking_uri(uri)
    numbers = Schema([TensorSpec(np.dtype("float32"), (-1, 4), "numbers")])
    doubled = Schema([TensorSpec(np.dtype("float32"), (-1, 4), "doubled")])
    mlflow.onnx.log_model(
        doubling(), name="model", signature=ModelSignature(inputs=numbers, outputs=doubled),
        registered_model_name="doubling",
    )  # fmt: skip
    client = mlflow.MlflowClient()
    newest = max(int(v.version) for v in client.search_model_versions("name='doubling'"))
    client.set_registered_model_alias("doubling", "champion", str(newest))
    print(newest)


if __name__ == "__main__":
    main(sys.argv[1])
