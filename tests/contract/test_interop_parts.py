"""A part of `make interop` that the machine cannot run fails; it is skipped only on request."""

from pathlib import Path

import pytest

from tests.interop.go_programs import promtool
from tests.interop.missing_programs import LEFT_OUT, missing

INTEROP = Path(__file__).parents[1] / "interop"


def test_a_part_without_its_program_fails_with_the_need(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(LEFT_OUT, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("tests.interop.go_programs.FOLDER", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"needs go.*; HEADRACE_INTEROP_SKIP=1 leaves"):
        promtool()


def test_a_part_without_its_program_is_skipped_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(LEFT_OUT, "1")
    with pytest.raises(pytest.skip.Exception, match=r"^needs chromium$"):
        missing("needs chromium")


def test_parts_are_skipped_only_by_missing_programs() -> None:
    words = ("pytest.skip(", "mark.skip", "importorskip", "xfail")
    skipping = {
        path.name
        for path in INTEROP.glob("*.py")
        if any(word in path.read_text() for word in words)
    }
    assert skipping == {"missing_programs.py"}
