"""Hooks around a model, plain Python operators, and files accepted as weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operators.models.hooks import Hooks, hooks, rows, stacked
from operators.models.libraries import cuda_index
from operators.models.model_errors import BadDevice, BadOperator, BadWeights
from operators.models.python import Python
from operators.models.weights import LIGHTGBM_TEXT, ONNX, SAFETENSORS, weights_file

CODE = """
def half(value):
    return value // 2


def total(batch, plus=0):
    return [sum(batch) + plus for _ in batch]


class Adder:
    def __init__(self, plus):
        self.plus = plus

    def __call__(self, value):
        return value + self.plus


class Mute:
    pass


number = 7
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain_functions.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))


def positive(batch: list[Any]) -> np.ndarray:
    if any(value < 0 for value in batch):
        raise ValueError("a value is negative")
    return np.array(batch)


def test_a_refused_value_gets_its_error_and_the_others_their_outputs() -> None:
    outputs = Hooks(positive, list).run([1, -2, 3], lambda values: values * 10)
    assert [repr(o) if isinstance(o, Exception) else int(o) for o in outputs] == [
        10,
        "ValueError('a value is negative')",
        30,
    ]


def test_a_batch_of_refused_values_never_reaches_the_model() -> None:
    outputs = Hooks(positive, list).run([-1, -2], lambda _: pytest.fail("the model ran"))
    assert [str(output) for output in outputs] == ["a value is negative"] * 2


def test_values_that_cannot_be_batched_together_fail_as_a_batch() -> None:
    with pytest.raises(ValueError, match="same shape"):
        hooks("", "").run([np.zeros(2), np.zeros(3)], lambda values: values)


def test_an_empty_batch_gives_no_outputs() -> None:
    assert Hooks(positive, list).run([], lambda values: values) == []


def test_a_hook_that_loses_outputs_is_found_out() -> None:
    with pytest.raises(ValueError, match="returned 1 outputs for 2 inputs"):
        Hooks(positive, lambda outputs: [1]).run([1, 2], lambda values: values)


def test_without_hooks_values_are_stacked_and_rows_come_out() -> None:
    inputs = stacked([[1, 2], [3, 4]])
    assert inputs.tolist() == [[1, 2], [3, 4]]
    assert [row.tolist() for row in rows((inputs, None))] == [[1, 2], [3, 4]]


def test_a_function_runs_on_each_value_and_fails_for_one_alone() -> None:
    operator = Python("plain_functions:half")
    operator.load("cpu")
    right, wrong = operator.predict([9, "nine"])
    assert (right, type(wrong)) == (4, TypeError)


def test_a_batched_function_sees_the_whole_batch() -> None:
    operator = Python("plain_functions:total", arguments={"plus": 1}, batched=True)
    operator.load("cpu")
    assert operator.predict([1, 2]) == [4, 4]


def test_a_class_is_made_once_and_called_with_each_value() -> None:
    operator = Python("plain_functions:Adder", arguments={"plus": 5})
    operator.load("cpu")
    assert operator.predict([1, 2]) == [6, 7]


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(BadOperator, match="plain_functions:number cannot be called"):
        Python("plain_functions:number")
    operator = Python("plain_functions:Mute")
    with pytest.raises(BadOperator, match="has no method __call__"):
        operator.load("cpu")


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl", ".bin", ".joblib", ""])
@pytest.mark.parametrize("wanted", [SAFETENSORS, LIGHTGBM_TEXT, ONNX])
def test_weights_that_may_be_pickles_are_refused_unopened(
    tmp_path: Path, suffix: str, wanted: str
) -> None:
    file = tmp_path / f"model{suffix}"
    file.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(BadWeights, match=f"this model reads {wanted} files only"):
        weights_file(str(file), wanted)


def test_weights_that_are_not_there_are_named() -> None:
    with pytest.raises(BadWeights, match=r"no file of weights 'gone.onnx'"):
        weights_file("gone.onnx", ONNX)


@pytest.mark.parametrize("device", ["gpu", "cuda", "cuda:x", "cuda:-1", "mps"])
def test_a_device_that_no_model_runs_on_is_refused(device: str) -> None:
    with pytest.raises(BadDevice, match="cpu or cuda:N"):
        cuda_index(device)
