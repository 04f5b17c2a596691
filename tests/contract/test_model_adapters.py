"""Every model adapter meets the same contract, whatever its library."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.roles.profiling.present_devices import cuda_count
from operators.models.libraries import library
from operators.models.lightgbm_model import LightGbm
from operators.models.model_errors import (
    BadArguments,
    BadDevice,
    BadReference,
    BadWeights,
    MissingExtra,
)
from operators.models.onnx_model import OnnxModel
from operators.models.python import Python
from operators.models.torch_module import TorchModule
from operators.models.torchvision_model import TorchvisionModel, torchvision_module
from operators.models.transformers_model import TransformersModel, transformers_module

pytestmark = pytest.mark.models

CODE = """
import numpy as np


def images(batch):
    for value in batch:
        if not isinstance(value, np.ndarray):
            raise ValueError(f"an image is an array, not {type(value).__name__}")
    return np.stack(batch)


def flat(batch):
    return images(batch).reshape(len(batch), -1)


def best(scores):
    return [int(score.argmax()) for score in scores]


def brightest(image):
    return int(images([image]).argmax())
"""

VISION = {"num_classes": 4, "width_mult": 0.1, "inverted_residual_setting": [[1, 8, 1, 1]]}
VIT = {
    "image_size": 32,
    "patch_size": 16,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "num_labels": 4,
}
HOOKS = {"before": "adapter_hooks:images", "after": "adapter_hooks:best"}
FLAT = {"before": "adapter_hooks:flat", "after": "adapter_hooks:best"}
PIXELS = 3 * 32 * 32

Build = Callable[[Path], Any]


def python(folder: Path) -> Python:
    return Python("adapter_hooks:brightest")


def torch_module(folder: Path) -> TorchModule:
    arguments = {"in_features": PIXELS, "out_features": 4}
    weights = saved(library("torch").nn.Linear(**arguments), folder / "linear.safetensors")
    return TorchModule("torch.nn:Linear", weights, arguments, **FLAT)


def torchvision_model(folder: Path) -> TorchvisionModel:
    weights = saved(torchvision_module("mobilenet_v2", VISION), folder / "mobilenet.safetensors")
    return TorchvisionModel("mobilenet_v2", weights, VISION, **HOOKS)


def transformers_model(folder: Path) -> TransformersModel:
    architecture = "ViTForImageClassification"
    weights = saved(transformers_module(architecture, VIT), folder / "vit.safetensors")
    return TransformersModel(architecture, weights, VIT, **HOOKS)


def lightgbm_model(folder: Path) -> LightGbm:
    lightgbm = library("lightgbm")
    rng = np.random.default_rng(0)
    data = lightgbm.Dataset(rng.random((200, PIXELS)), rng.integers(4, size=200))
    settings = {"objective": "multiclass", "num_class": 4, "verbose": -1, "num_threads": 1}
    lightgbm.train(settings, data, 2).save_model(folder / "forest.txt")
    return LightGbm(str(folder / "forest.txt"), **FLAT)


def onnx_model(folder: Path) -> OnnxModel:
    onnx = library("onnx")
    values = onnx.numpy_helper.from_array(
        np.random.default_rng(0).random((PIXELS, 4), dtype=np.float32), "w"
    )
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", PIXELS])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 4])
    graph = onnx.helper.make_graph([node], "linear", [x], [y], [values])
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    (folder / "linear.onnx").write_bytes(model.SerializeToString())
    return OnnxModel(str(folder / "linear.onnx"), **FLAT)


def saved(module: Any, file: Path) -> str:
    library("safetensors.torch").save_file(module.state_dict(), file)
    return str(file)


ADAPTERS = {
    "python": python,
    "torch": torch_module,
    "torchvision": torchvision_model,
    "transformers": transformers_model,
    "lightgbm": lightgbm_model,
    "onnx": onnx_model,
}
WITH_WEIGHTS = {
    "torch": lambda weights: TorchModule("torch.nn:Linear", weights),
    "torchvision": lambda weights: TorchvisionModel("mobilenet_v2", weights),
    "transformers": lambda weights: TransformersModel("ViTForImageClassification", weights),
    "lightgbm": lambda weights: LightGbm(weights),
    "onnx": lambda weights: OnnxModel(weights),
}


@pytest.fixture(autouse=True)
def hooks_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adapter_hooks.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture(params=list(ADAPTERS))
def operator(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Yield each adapter in turn, loaded on the CPU."""
    made = ADAPTERS[request.param](tmp_path)
    made.load("cpu")
    return made


def images(n: int) -> list[np.ndarray]:
    return list(np.random.default_rng(1).random((n, 3, 32, 32), dtype=np.float32))


@pytest.mark.parametrize("n", [0, 1, 5])
def test_there_is_one_output_for_each_input(operator: Any, n: int) -> None:
    assert [type(output) for output in operator.predict(images(n))] == [int] * n


def test_the_same_batch_gives_the_same_outputs(operator: Any) -> None:
    assert operator.predict(images(6)) == operator.predict(images(6))


def test_an_output_does_not_depend_on_its_neighbours(operator: Any) -> None:
    batch = images(6)
    assert operator.predict(batch) == [operator.predict([image])[0] for image in batch]


def test_a_bad_item_fails_alone(operator: Any) -> None:
    good = images(2)
    first, wrong, last = operator.predict([good[0], "no image", good[1]])
    assert [first, last] == operator.predict(good)
    assert repr(wrong) == repr(ValueError("an image is an array, not str"))


@pytest.mark.parametrize("adapter", list(WITH_WEIGHTS))
@pytest.mark.parametrize("suffix", ["pt", "pth", "pkl", "bin", "joblib"])
def test_pickles_are_refused(adapter: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"model.{suffix}"
    file.write_bytes(b"")
    with pytest.raises(BadWeights, match="never pickles"):
        WITH_WEIGHTS[adapter](str(file))


@pytest.mark.parametrize("adapter", ["torch", "torchvision", "transformers"])
def test_a_gpu_gives_the_outputs_of_the_cpu(adapter: str, tmp_path: Path) -> None:
    if not cuda_count():
        pytest.skip("this machine has no CUDA device")
    operator = ADAPTERS[adapter](tmp_path)
    operator.load("cpu")
    on_cpu = operator.predict(images(20))
    operator.load("cuda:0")
    assert operator.predict(images(20)) == on_cpu
    assert library("torch").cuda.memory_allocated("cuda:0") > 0


@pytest.mark.parametrize("adapter", list(WITH_WEIGHTS))
def test_a_missing_device_is_refused(adapter: str, tmp_path: Path) -> None:
    operator = ADAPTERS[adapter](tmp_path)
    with pytest.raises(BadDevice, match="cuda:99"):
        operator.load("cuda:99")


def test_a_session_that_fell_back_to_the_cpu_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime-gpu without CUDA's libraries lists the provider, and runs on the CPU."""
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(library("onnxruntime"), "get_available_providers", lambda: providers)
    with (
        pytest.warns(UserWarning, match="not in available provider names"),
        pytest.raises(BadDevice, match="cannot use 'cuda:0' and would run on cpu"),
    ):
        onnx_model(tmp_path).load("cuda:0")


@pytest.mark.models
def test_a_device_without_memory_makes_no_bad_onnx_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = library("onnxruntime")
    fault = runtime.capi.onnxruntime_pybind11_state.Fail

    def session(*_: object, **__: object) -> None:
        raise fault(
            "[ONNXRuntimeError] : 1 : FAIL : Failed to allocate memory for requested buffer"
        )

    monkeypatch.setattr(runtime, "InferenceSession", session)
    with pytest.raises(fault, match="Failed to allocate memory"):
        onnx_model(tmp_path).load("cpu")


@pytest.mark.parametrize(
    ("adapter", "absent", "extra"),
    [
        ("torch", "torch", "torch"),
        ("torchvision", "torchvision.models", "torch"),
        ("transformers", "transformers", "torch"),
        ("onnx", "onnxruntime", "onnx"),
    ],
)
def test_a_missing_extra_is_named_when_the_model_is_loaded(
    adapter: str, absent: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = ADAPTERS[adapter](tmp_path)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'headrace\[{extra}\]'"):
        operator.load("cpu")


def test_weights_of_another_module_are_refused(tmp_path: Path) -> None:
    weights = saved(library("torch").nn.Linear(3, 4), tmp_path / "other.safetensors")
    operator = TorchModule("torch.nn:Linear", weights, {"in_features": 5, "out_features": 4})
    with pytest.raises(BadWeights, match=r"weight is \(4, 3\), not \(4, 5\); use the arguments"):
        operator.load("cpu")


@pytest.mark.parametrize(
    ("adapter", "file"),
    [("torch", "a.safetensors"), ("lightgbm", "a.txt"), ("onnx", "a.onnx")],
)
def test_a_file_that_is_no_model_is_refused(adapter: str, file: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text("nothing of the kind\n")
    made = {
        "torch": lambda weights: TorchModule("torch.nn:ReLU", weights),
        "lightgbm": LightGbm,
        "onnx": OnnxModel,
    }[adapter](str(tmp_path / file))
    with pytest.raises(BadWeights, match=r"is no (safetensors|LightGBM|ONNX)"):
        made.load("cpu")


def test_an_unknown_architecture_names_the_nearest() -> None:
    with pytest.raises(BadReference, match="did you mean 'mobilenet_v2'"):
        torchvision_module("mobilnet_v2", {})
    with pytest.raises(BadReference, match="did you mean 'ViTForImageClassification'"):
        transformers_module("ViTForImageClasification", {})


def test_arguments_that_an_architecture_does_not_take_are_named() -> None:
    with pytest.raises(BadArguments, match=r"mobilenet_v2 cannot be made .*colour"):
        torchvision_module("mobilenet_v2", {"colour": "red"})


def test_loading_a_model_sends_no_telemetry(tmp_path: Path) -> None:
    """onnxruntime stores its telemetry identity in the temporary folder."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    onnx_model(tmp_path)
    code = "import sys; from operators.models.onnx_model import OnnxModel as Model; "
    command = [sys.executable, "-c", code + "Model(sys.argv[1]).load('cpu')"]
    subprocess.run(
        [*command, str(tmp_path / "linear.onnx")], check=True, cwd=Path(__file__).parents[2],
        env={"TMPDIR": str(temporary)},
    )  # fmt: skip
    assert list(temporary.iterdir()) == []


def test_a_model_computes_on_one_thread(tmp_path: Path) -> None:
    torch = library("torch")
    torch.set_num_threads(2)
    torch_module(tmp_path).load("cpu")
    assert torch.get_num_threads() == 1


LOOKS = """
import subprocess
import sys
from operators.models.loading import preload
from schemas.pipeline import Variant
arguments = {"architecture": "ViTForImageClassification"}
operator = "operators.models.transformers_model:TransformersModel"
preload([Variant(task="read", name="vit", operator=operator, arguments=arguments)])
print("transformers.models.vit.modeling_vit" in sys.modules)
"""


def test_an_architecture_is_imported_before_a_worker_serves() -> None:
    ran = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"
