"""Compiled modules are used only while they match their source."""

import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from headrace.roles.compiled import check_compiled, outdated


def tree(root: Path, source_s: float, twin_s: float) -> Path:
    """Write a source tree with one compiled module, last changed at the given times."""
    (root / "operators").mkdir()
    (root / "setup.py").touch()
    for name, at_s in (("worker.py", source_s), (f"worker{EXTENSION_SUFFIXES[0]}", twin_s)):
        path = root / "operators" / name
        path.touch()
        os.utime(path, (at_s, at_s))
    return root


def test_a_twin_that_is_newer_than_its_source_is_used(tmp_path: Path) -> None:
    assert outdated(tree(tmp_path, 100.0, 200.0)) == []
    check_compiled(tmp_path)


def test_source_that_was_edited_after_it_was_compiled_is_refused_with_a_remedy(
    tmp_path: Path,
) -> None:
    with pytest.raises(ImportError, match=r"operators/worker\.py is newer .*`make compiled`"):
        check_compiled(tree(tmp_path, 200.0, 100.0))


def test_a_twin_whose_source_is_gone_is_refused(tmp_path: Path) -> None:
    (tree(tmp_path, 100.0, 200.0) / "operators" / "worker.py").unlink()
    assert outdated(tmp_path) == ["operators/worker.py"]


def test_installed_files_are_not_checked_by_their_times(tmp_path: Path) -> None:
    (tree(tmp_path, 200.0, 100.0) / "setup.py").unlink()
    assert outdated(tmp_path) == []
