"""References of the form "package.module:name", loaded on first use.

Solvers and SciPy take most of a second to import: a role that only carries queries never loads the
planner of its policy.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

_Value = TypeVar("_Value")


def parts(reference: str) -> tuple[str, str]:
    """Split "package.module:name"; raise ``ValueError`` unless it has both."""
    module, _, name = reference.partition(":")
    if not (module and name):
        raise ValueError(
            f"{reference!r} names no class or function; write it as package.module:name"
        )
    return module, name


def load(reference: str) -> Any:
    """Return the object that "package.module:name" refers to.

    Raises ``ValueError`` for another form, ``ImportError`` for a missing module and
    ``AttributeError`` for a missing name.
    """
    module, name = parts(reference)
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
