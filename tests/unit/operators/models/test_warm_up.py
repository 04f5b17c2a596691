"""Sample batches that run through an operator before its worker counts as ready."""

from pathlib import Path
from typing import Any

import pytest

from operators.models.model_errors import BadOperator
from operators.models.warm_up import Warmed
from schemas.pipeline import Variant


class Recorder:
    """An operator that records its calls in order."""

    def __init__(self, samples: list[Any] | None = None) -> None:
        self.calls: list[Any] = []
        self._own = samples

    def load(self, device: str) -> None:
        self.calls.append(device)

    def predict(self, batch: list[Any]) -> list[Any]:
        self.calls.append(list(batch))
        if "short" in batch:
            return []
        return [ValueError("no digit in it") if each == "bad" else each for each in batch]


class WithSamples(Recorder):
    def warm_up(self) -> list[Any]:
        return self._own or []


def variant(**changes: Any) -> Variant:
    return Variant(task="read", name="v", operator="module:Class", **{"batch": 4, **changes})


def calls(operator: Recorder, one: Variant) -> list[Any]:
    Warmed(operator, one).load("cpu")
    return operator.calls


def test_one_sample_and_then_a_full_batch_run_before_load_returns() -> None:
    assert calls(WithSamples(["a", "b", "c"]), variant()) == ["cpu", ["a"], ["a", "b", "c", "a"]]
    assert calls(WithSamples(["a", "b"]), variant(batch=1)) == ["cpu", ["a"]]


def test_an_operator_without_samples_only_loads() -> None:
    assert calls(Recorder(), variant()) == ["cpu"]
    assert calls(WithSamples([]), variant()) == ["cpu"]


def test_the_bytes_of_a_named_file_are_the_sample(tmp_path: Path) -> None:
    (tmp_path / "sample.png").write_bytes(b"png")
    one = variant(batch=2, warm_up=str(tmp_path / "sample.png"))
    assert calls(Recorder(), one) == ["cpu", [b"png"], [b"png", b"png"]]
    with pytest.raises(BadOperator, match="the warm-up of read/v raised FileNotFoundError"):
        calls(Recorder(), variant(warm_up=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("sample", "says"),
    [("bad", "raised ValueError: no digit in it"), ("short", "0 outputs for 1 samples")],
)
def test_a_sample_that_cannot_be_run_is_an_error_of_loading(sample: str, says: str) -> None:
    with pytest.raises(BadOperator, match=says):
        calls(WithSamples([sample]), variant())


def test_a_sample_that_the_operator_changes_serves_again() -> None:
    class Changes(WithSamples):
        def predict(self, batch: list[Any]) -> list[Any]:
            return [each.pop("raw") for each in batch]

    Warmed(Changes([{"raw": "a"}]), variant()).load("cpu")


def test_an_operator_may_replace_its_predict_when_it_loads() -> None:
    class Compiled(Recorder):
        def load(self, device: str) -> None:
            self.predict = lambda batch: ["compiled" for _ in batch]  # type: ignore[method-assign]

    warmed = Warmed(Compiled(), variant())
    warmed.load("cpu")
    assert warmed.predict(["a"]) == ["compiled"]
