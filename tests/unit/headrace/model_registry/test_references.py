"""References to models: parsing and refusals."""

import pytest

from headrace.errors import PipelineError
from headrace.model_registry.references import (
    HUB,
    MLFLOW,
    Reference,
    is_reference,
    parsed_reference,
)

GOOD = {
    "models:/reader@champion": Reference(text="", registry=MLFLOW, name="reader", alias="champion"),
    "models:/reader/7": Reference(text="", registry=MLFLOW, name="reader", version="7"),
    "models:/reader/7/a/b.onnx": Reference(
        text="", registry=MLFLOW, name="reader", version="7", file="a/b.onnx"
    ),
    "models:/my reader@champion/m.txt": Reference(
        text="", registry=MLFLOW, name="my reader", alias="champion", file="m.txt"
    ),
    "hf://org/name@0a1b": Reference(
        text="", registry=HUB, name="org/name", version="0a1b", file="model.safetensors"
    ),
    "hf://org/name@main/onnx/model.onnx": Reference(
        text="", registry=HUB, name="org/name", version="main", file="onnx/model.onnx"
    ),
}


@pytest.mark.parametrize("text", GOOD)
def test_references_are_read(text: str) -> None:
    found = parsed_reference(text)
    assert found.text == text
    wanted = GOOD[text]
    assert (found.registry, found.name, found.alias, found.version, found.file) == (
        wanted.registry, wanted.name, wanted.alias, wanted.version, wanted.file,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("models:/reader", "write models:/NAME@ALIAS or models:/NAME/VERSION"),
        ("models:/reader/Production", "write models:/NAME@ALIAS or models:/NAME/VERSION"),
        ("models:reader@champion", "write models:/NAME@ALIAS"),
        ("hf://name@main", "write hf://ORG/NAME@REVISION"),
        ("hf://org/name", "write hf://ORG/NAME@REVISION"),
        ("hf://org/name@main/pytorch_model.bin", "may be a pickle"),
        ("models:/reader/7/model.pkl", "may be a pickle"),
        ("models:/reader/7/../../secret.onnx", "leaves the model's folder"),
    ],
)
def test_other_texts_are_refused_with_the_remedy(text: str, sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        parsed_reference(text)


def test_paths_are_no_references() -> None:
    assert not any(map(is_reference, ("models/reader.onnx", "weights.safetensors", 3, None)))
