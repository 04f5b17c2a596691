"""Frames of user code: named if present, bounded, without Headrace's own frames."""

from pathlib import Path
from types import ModuleType

import pytest

from operators.calls.user_frames import (
    MAX_FRAMES,
    MAX_SENTENCE,
    error_sentence,
    frames,
    trace,
    with_frames,
)

OPERATOR = """\
import json

def predict(batch):
    return [_score(value) for value in batch]

def _score(value):
    return json.loads(value)

def deep(depth):
    if depth == 0:
        raise ValueError("at the bottom")
    return deep(depth - 1)
"""


@pytest.fixture
def operator(tmp_path: Path) -> ModuleType:
    file = tmp_path / "ops.py"
    file.write_text(OPERATOR)
    module = ModuleType("ops")
    exec(compile(OPERATOR, str(file), "exec"), vars(module))
    return module


def raised(call: object, *arguments: object) -> Exception:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - whatever the operator says
        call(*arguments)  # type: ignore[operator]
    # Frames added by the test itself are not the operator's.
    error = caught.value
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


def test_the_users_frames_are_named_and_those_of_the_standard_library_left_out(
    operator: ModuleType,
) -> None:
    error = raised(operator.predict, ["no json"])
    told = with_frames("x raised", error)
    assert "ops.py:4 predict" in told
    assert told.endswith("> ops.py:7 _score: return json.loads(value))")
    assert "decoder.py" not in trace(error)


def test_frames_are_bounded(operator: ModuleType) -> None:
    error = raised(operator.deep, 200)
    assert with_frames("x", error).count("ops.py:") == MAX_FRAMES
    assert len(trace(error).splitlines()) == 12


def test_a_syntax_error_names_its_place(tmp_path: Path) -> None:
    file = tmp_path / "syn.py"
    with pytest.raises(SyntaxError) as caught:
        compile("def f(:\n", str(file), "exec")
    assert frames(caught.value)[-1].lineno == 1
    assert "syn.py:1" in with_frames("it", caught.value)


def test_an_exception_without_frames_adds_nothing() -> None:
    assert with_frames("x", ValueError("no")) == "x"


def test_a_sentence_is_bounded_and_survives_what_its_error_says() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_sentence(ValueError("a\nb")) == "ValueError: a b"
    assert len(error_sentence(ValueError("x" * 9000))) == len("ValueError: ") + MAX_SENTENCE
    assert error_sentence(SystemExit()) == "SystemExit"
    assert error_sentence(Mute()) == "Mute: its message cannot be shown (RuntimeError)"
    assert error_sentence(ValueError("\udc80")) == "ValueError: ?"
