"""headrace/errors.py: the tree in the docstring matches the classes."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace.errors
from headrace.errors import Unsuccessful, exit_code
from schemas.user_errors import HeadraceError

ROOT = Path(__file__).parents[3]
PACKAGES = ("schemas", "profiles", "control", "operators", "streams", "headrace")


def drawn() -> dict[str, int]:
    """Return exit codes by class name, as in the docstring."""
    rows = re.findall(r"^[├└]── (\w+) +\[(\d)\]", headrace.errors.__doc__ or "", re.MULTILINE)
    return {name: int(code) for name, code in rows}


def defined() -> Iterator[type[HeadraceError]]:
    """Return every class with HeadraceError among its bases."""
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        if "HeadraceError" not in (source := path.read_text()):
            continue
        for node in ast.parse(source).body:
            bases = [ast.unparse(b) for b in node.bases] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.ClassDef) and "HeadraceError" in bases:
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                yield getattr(importlib.import_module(module), node.name)


def test_every_error_is_drawn_with_its_exit_code() -> None:
    assert {kind.__name__: kind.exit_code for kind in defined()} == drawn()


@pytest.mark.parametrize(("error", "code"), [(Unsuccessful("no"), 1), (ValueError("x"), None)])
def test_only_errors_of_the_tree_have_an_exit_code(error: Exception, code: int | None) -> None:
    assert exit_code(error) == code
