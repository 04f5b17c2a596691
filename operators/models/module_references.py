"""Resolve "module:name" references of a pipeline file."""

import importlib.util
import pkgutil
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from control.problem.lazy_references import parts
from operators.models.libraries import missing
from operators.models.model_errors import BadReference
from operators.models.user_modules import import_module


def resolve(reference: str) -> Any:
    """Return the class or function named "package.module:name".

    Raise ``BadReference`` with the nearest existing name, or ``MissingExtra`` if the module needs
    the library of an extra that is not installed; other errors of the module propagate.
    """
    try:
        place, name = parts(reference)
    except ValueError as error:
        raise BadReference(str(error)) from error
    module = _module(place, reference)
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise BadReference(f"module {place} has no {name!r}{nearest_hint(name, public)}")
    return getattr(module, name)


def nearest_hint(name: str, known: list[str]) -> str:
    """Return an error's hint: the known name closest to ``name``, else all if at most ten."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; it has {', '.join(known)}" if 0 < len(known) <= 10 else ""


def _module(place: str, reference: str) -> ModuleType:
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        absent = error.name or ""
        if place != absent and not place.startswith(f"{absent}."):
            raise missing(error) from error  # the module exists, one of its imports does not
        raise BadReference(_no_module(absent, reference)) from error


def _no_module(absent: str, reference: str) -> str:
    parent, _, name = absent.rpartition(".")
    if not parent:
        return (
            f"no module {absent!r} for {reference!r}: it is neither beside the pipeline file "
            f"nor installed"
        )
    siblings = [m.name for m in pkgutil.iter_modules(_folders(parent))]
    if not siblings:
        return f"{parent!r} in {reference!r} is a module, not a package, so it holds no {name!r}"
    return f"package {parent} has no module {name!r}{nearest_hint(name, siblings)}"


def _folders(package: str) -> list[str]:
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec else []
