"""Export a torch network, a sequence of layers, to ONNX."""

from typing import Any

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from postcode.crops import SIDE

OPSET = 17
IR_VERSION = 9  # read by every onnxruntime since 1.16


def onnx_model(network: Any) -> bytes:
    """The network (its ``layers`` in a row, in evaluation mode) as an ONNX model.

    Input "crops" (n, 1, SIDE, SIDE) float32, output "scores" (n, 10). Normalisation is folded
    into the convolution before it. Raises ``TypeError`` for a kind of layer not known here.
    """
    nodes, tensors, last = [], [], "crops"
    for i, layer in enumerate(_folded(list(network.layers))):
        kind, attributes, parameters = _described(layer)
        names = [f"p{i}_{k}" for k in range(len(parameters))]
        tensors += [
            numpy_helper.from_array(tensor.detach().numpy(), name)
            for name, tensor in zip(names, parameters, strict=True)
        ]
        nodes.append(helper.make_node(kind, [last, *names], [f"x{i}"], **attributes))
        last = f"x{i}"
    nodes[-1].output[0] = "scores"
    crops = helper.make_tensor_value_info("crops", TensorProto.FLOAT, ["n", 1, SIDE, SIDE])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph(nodes, "reader", [crops], [scores], tensors)
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _folded(layers: list[nn.Module]) -> list[nn.Module]:
    """The layers that do something in evaluation mode, normalisation folded away."""
    kept: list[nn.Module] = []
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            kept[-1] = fuse_conv_bn_eval(kept[-1], layer)
        elif not isinstance(layer, nn.Dropout):
            kept.append(layer)
    return kept


def _described(layer: nn.Module) -> tuple[str, dict[str, Any], list[torch.Tensor]]:
    """The layer's ONNX kind, attributes and parameters."""
    match layer:
        case nn.Conv2d():
            return "Conv", {"pads": [*layer.padding, *layer.padding]}, [layer.weight, layer.bias]
        case nn.Linear():
            return "Gemm", {"transB": 1}, [layer.weight, layer.bias]
        case nn.MaxPool2d():
            size = [layer.kernel_size] * 2
            return "MaxPool", {"kernel_shape": size, "strides": size}, []
        case nn.ReLU():
            return "Relu", {}, []
        case nn.Flatten():
            return "Flatten", {}, []
    raise TypeError(f"no ONNX for a layer of kind {type(layer).__name__}")
