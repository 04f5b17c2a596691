"""References of the form "package.module:name", loaded on first use.

Solvers and SciPy take most of a second to import: a role that only carries queries never loads the
planner of its policy.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

_Value = TypeVar("_Value")


def load(reference: str) -> Any:
    """Return the object that "package.module:name" refers to.

    Raises ``ImportError`` for a missing module and ``AttributeError`` for a missing name.
    """
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def chosen(table: Mapping[str, _Value], name: str) -> _Value:
    """Return the entry of a table of rules, or the object that ``name`` refers to.

    A policy of another package brings rules of its own by reference; raises ``KeyError`` for a
    name that is neither.
    """
    if ":" in name:
        found: _Value = load(name)
        return found
    return table[name]
