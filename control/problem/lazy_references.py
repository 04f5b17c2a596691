"""References of the form "package.module:name", loaded on first use.

Solvers and SciPy take most of a second to import. Roles that only carry queries never load the
planner of their policy.
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


def object_named(reference: str) -> Any:
    """Return the object that "package.module:name" refers to.

    Raises ``ValueError`` for another form, ``ImportError`` for a missing module and
    ``AttributeError`` for a missing name.
    """
    module, name = parts(reference)
    return getattr(import_module(module), name)


def rule_named(table: Mapping[str, _Value], name: str) -> _Value:
    """Return the entry of a table of rules, or the object that ``name`` refers to.

    Policies of other packages name their own rules by reference. Raises ``KeyError`` for a name
    that is neither.
    """
    if ":" in name:
        found: _Value = object_named(name)
        return found
    return table[name]
