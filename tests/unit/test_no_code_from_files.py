"""No file runs code when it is read: neither pipeline files nor weights nor messages."""

import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.config.pipeline_file import read_pipeline_file
from headrace.errors import PipelineError
from operators.models.lightgbm_model import LightGbm
from operators.models.loading import load_operator
from operators.models.model_errors import BadOperator, BadReference, BadWeights
from operators.models.onnx_model import OnnxModel
from operators.models.torch_module import TorchModule
from operators.models.torchvision_model import TorchvisionModel
from operators.models.transformers_model import TransformersModel
from schemas.codec.single_object import CodecError, decode, encode
from schemas.pipeline import Variant
from schemas.records import Query

PIPELINE = """\
name: words
slo: {slo}
tasks:
  split:
    variants:
      plain: {{operator: "{operator}"}}
cluster:
  devices: {{cpu: 1}}
"""


class Trap:
    """An object that leaves a mark when unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = str(mark)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self._mark,)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "code-has-run"


def test_the_trap_works(mark: Path) -> None:
    pickle.loads(pickle.dumps(Trap(mark)))
    assert mark.exists()


# ---------------------------------------------------------------------- pipeline files


@pytest.mark.parametrize(
    "tag",
    [
        '!!python/object/apply:os.mkdir ["MARK"]',
        '!!python/object/new:os.mkdir ["MARK"]',
        "!!python/name:os.mkdir",
        "!!python/module:os",
        '!<tag:yaml.org,2002:python/object/apply:os.mkdir> ["MARK"]',
        '!os.mkdir ["MARK"]',
    ],
)
def test_a_tag_that_asks_for_code_is_refused(tag: str, mark: Path, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(slo=tag.replace("MARK", str(mark)), operator="words:Split"))
    with pytest.raises(PipelineError, match=r"pipeline\.yaml:2: the tag .* is not known here"):
        read_pipeline_file(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "operator",
    [
        "__import__('os').mkdir('MARK')",
        "os:mkdir('MARK')",
        "words:Split; import os",
        "MARK.py:Split",
        "../words:Split",
        ".words:Split",
        "os:path.join",
        "http://example.org/words:Split",
    ],
)
def test_an_operator_is_a_name_and_no_expression_or_path(
    operator: str, mark: Path, tmp_path: Path
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(slo="1s", operator=operator.replace("MARK", str(mark))))
    with pytest.raises(PipelineError, match=r":6: .* write it as package\.module:Name"):
        read_pipeline_file(path)
    assert not mark.exists()


def test_a_pipeline_file_is_read_without_importing_what_it_names(
    mark: Path, tmp_path: Path
) -> None:
    (tmp_path / "trapped.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(slo="1s", operator="trapped:Split"))
    assert read_pipeline_file(path).pipeline.root.variants[0].operator == "trapped:Split"
    assert not mark.exists()


@pytest.mark.parametrize(
    ("operator", "error", "sentence"),
    [
        ("no_such_module:Split", BadReference, "neither beside the pipeline file nor installed"),
        ("os:mkdir", BadOperator, "os:mkdir is no class and no Python function"),
        ("io:BytesIO", BadOperator, "io:BytesIO has no method predict"),
        ("os:getcwd()", BadReference, "module os has no 'getcwd\\(\\)'"),
    ],
)
def test_an_operator_is_a_class_or_function_of_an_importable_module(
    operator: str, error: type[Exception], sentence: str
) -> None:
    variant = Variant(task="split", name="plain", operator=operator, batch=1)
    with pytest.raises(error, match=sentence):
        load_operator(variant)


# ---------------------------------------------------------------------- weights


def bare(trap: Trap) -> bytes:
    return pickle.dumps(trap)


def first_protocol(trap: Trap) -> bytes:
    return pickle.dumps(trap, protocol=0)


def as_torch_saves(trap: Trap) -> bytes:
    """Write a zip archive like torch.save's, whose data.pkl torch.load would unpickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(trap))
        archive.writestr("archive/version", "3\n")
    return file.getvalue()


MODELS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "torch": (
        "safetensors",
        lambda w: TorchModule("torch.nn:Linear", w, {"in_features": 2, "out_features": 1}),
    ),
    "torchvision": (
        "safetensors",
        lambda w: TorchvisionModel("mobilenet_v2", w, {"num_classes": 2, "width_mult": 0.1}),
    ),
    "transformers": (
        "safetensors",
        lambda w: TransformersModel(
            "ViTForImageClassification", w,
            {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2},
        ),
    ),
    "lightgbm": ("txt", LightGbm),
    "onnx": ("onnx", OnnxModel),
}  # fmt: skip


@pytest.mark.models
@pytest.mark.parametrize("pickled", [bare, first_protocol, as_torch_saves])
@pytest.mark.parametrize("model", MODELS)
def test_a_pickle_under_the_name_of_weights_is_refused_by_its_content(
    model: str, pickled: Callable[[Trap], bytes], mark: Path, tmp_path: Path
) -> None:
    suffix, make = MODELS[model]
    weights = tmp_path / f"weights.{suffix}"
    weights.write_bytes(pickled(Trap(mark)))
    with pytest.raises(BadWeights, match=r"is no (safetensors file|LightGBM model|ONNX model)"):
        make(str(weights)).load("cpu")
    assert not mark.exists()


# ---------------------------------------------------------------------- what is sent


def test_an_object_cannot_travel_and_a_pickle_is_only_bytes(mark: Path) -> None:
    with pytest.raises(CodecError, match="cannot travel between tasks"):
        encode(Query(payload=np.array([Trap(mark)], dtype=object)))
    query = decode(encode(Query(payload=pickle.dumps(Trap(mark)), id="q")))
    assert isinstance(query, Query)
    assert isinstance(query.payload, bytes)
    assert not mark.exists()
