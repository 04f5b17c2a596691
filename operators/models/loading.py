"""Build operators from the variants of a pipeline file."""

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from operators.calls.user_frames import error_sentence, trace, with_frames
from operators.models.model_errors import BadArguments, BadOperator, ModelError
from operators.models.module_references import nearest_hint, resolve
from operators.models.output_schema import Checked, schema_check
from operators.models.python import Python
from schemas.pipeline import Variant


def load_operator(variant: Variant) -> object:
    """Build a variant's operator from its arguments, without calling its ``load(device)``.

    Raise a ``ModelError`` whose message begins with the variant; for an exception of the operator's
    module or ``__init__`` the message names the frames of the user's code.
    """
    try:
        operator = _built(resolve(variant.operator), variant)
        if variant.output_schema:
            operator = Checked(operator, schema_check(Path(variant.output_schema)))
    except ModelError as error:
        raise type(error)(f"{variant.key}: {error}", error.trace) from error
    except (Exception, SystemExit) as error:
        text = f"{variant.key}: {variant.operator} raised {error_sentence(error)}"
        raise BadOperator(with_frames(text, error), trace(error)) from error
    return operator


def preload(variants: Iterable[Variant]) -> None:
    """Import the installed ``libraries`` that the variants' operator classes list, and call their
    ``preload``, if they have one, with a variant's arguments.

    If an operator's arguments name another one as ``module:Class``, its libraries are imported too.
    A worker imports before its first report, as importing torch holds the GIL for a second or more.
    During service, an import would delay queries, and a long one the reports, until the worker
    counts as dead.
    """
    variants = list(variants)
    named = (
        name
        for variant in variants
        for name in (variant.operator, *variant.arguments.values())
        if isinstance(name, str) and ":" in name
    )
    # ``load_operator`` reports missing or misspelt names, with the variant's name.
    for reference in dict.fromkeys(named):
        with contextlib.suppress(Exception, SystemExit):
            for name in getattr(resolve(reference), "libraries", ()):
                importlib.import_module(name)
    for variant in variants:
        with contextlib.suppress(Exception, SystemExit):
            getattr(resolve(variant.operator), "preload", _nothing)(variant.arguments)


def _nothing(_: object) -> None:
    """Preload nothing: the operator needs nothing beyond its libraries."""


def _built(named: Any, variant: Variant) -> object:
    """Build the operator of the class or function that a variant names."""
    if inspect.isfunction(named):
        _check_arguments(named, variant, [])  # [] stands for the batch
        return Python(variant.operator, variant.arguments, batched=True)
    _check_class(named, variant.operator)
    _check_arguments(named, variant)
    operator: object = named(**variant.arguments)
    return operator if hasattr(operator, "load") else WithoutLoad(operator)


class WithoutLoad:
    """An operator that has nothing to load, with a ``load`` that does nothing."""

    def __init__(self, operator: Any) -> None:
        self._operator = operator
        if hasattr(operator, "warm_up"):
            self.warm_up = operator.warm_up

    def load(self, device: str) -> None:
        """Do nothing."""

    def predict(self, batch: list[Any]) -> Any:
        """Return the operator's outputs."""
        return self._operator.predict(batch)


def _check_class(named: Any, name: str) -> None:
    if not inspect.isclass(named):
        raise BadOperator(f"{name} is no class and no Python function; name one of these")
    if not callable(getattr(named, "predict", None)):
        raise BadOperator(f"{name} has no method predict; an operator needs predict(batch)")


def _check_arguments(called: Callable[..., Any], variant: Variant, *before: Any) -> None:
    signature = inspect.signature(called)
    try:
        signature.bind(*before, **variant.arguments)
    except TypeError as error:
        known = list(signature.parameters)
        unknown = [name for name in variant.arguments if name not in known]
        if not unknown:
            hint = f"; it takes {', '.join(known)}"
        elif repr(unknown[0]) in str(error):
            hint = nearest_hint(unknown[0], known)
        else:  # the error names the argument that is missing, not the misspelt one
            hint = f"; it has no {unknown[0]!r}{nearest_hint(unknown[0], known)}"
        raise BadArguments(f"{variant.operator}: {error}{hint}") from error
