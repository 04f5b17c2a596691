"""Build operators from the variants of a pipeline file."""

import contextlib
import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from operators.models.model_errors import BadArguments, BadOperator, ModelError
from operators.models.module_references import nearest, resolve
from operators.models.output_schema import Checked, schema_check
from operators.user_frames import sentence, trace, with_frames
from schemas.pipeline import Variant


def load_operator(variant: Variant) -> object:
    """Build a variant's operator from its arguments, without calling its ``load(device)``.

    Raise a ``ModelError`` whose message begins with the variant; for an exception of the operator's
    module or ``__init__`` the message names the frames of the user's code.
    """
    try:
        made = resolve(variant.operator)
        _check_class(made, variant.operator)
        _check_arguments(made, variant)
        operator: object = made(**variant.arguments)
        if variant.output_schema:
            operator = Checked(operator, schema_check(Path(variant.output_schema)))
    except ModelError as error:
        raise type(error)(f"{variant.key}: {error}", error.trace) from error
    except (Exception, SystemExit) as error:
        text = f"{variant.key}: {variant.operator} raised {sentence(error)}"
        raise BadOperator(with_frames(text, error), trace(error)) from error
    return operator


def preload(variants: Iterable[Variant]) -> None:
    """Import the installed ``libraries`` that the variants' operator classes list.

    An operator may build another one that its arguments name as ``module:Class``: its libraries are
    imported, too. Importing torch holds the GIL for a second or more. A worker imports before its
    first report: an import while it serves would delay reports until the worker counts as dead.
    """
    named = (
        name
        for variant in variants
        for name in (variant.operator, *variant.arguments.values())
        if isinstance(name, str) and ":" in name
    )
    for reference in dict.fromkeys(named):
        # ``load_operator`` reports missing or misspelt names, with the variant's name.
        with contextlib.suppress(Exception, SystemExit):
            for name in getattr(resolve(reference), "libraries", ()):
                importlib.import_module(name)


def _check_class(made: Any, name: str) -> None:
    if not inspect.isclass(made):
        raise BadOperator(f"{name} is no class; wrap a function in operators.models.python:Python")
    lacking = [m for m in ("load", "predict") if not callable(getattr(made, m, None))]
    if lacking:
        raise BadOperator(
            f"{name} has no method {' and no '.join(lacking)}; an operator needs load(device) "
            f"and predict(batch)"
        )


def _check_arguments(made: Any, variant: Variant) -> None:
    signature = inspect.signature(made)
    try:
        signature.bind(**variant.arguments)
    except TypeError as error:
        known = list(signature.parameters)
        unknown = [name for name in variant.arguments if name not in known]
        hint = nearest(unknown[0], known) if unknown else f"; it takes {', '.join(known)}"
        raise BadArguments(f"{variant.operator}: {error}{hint}") from error
