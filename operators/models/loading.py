"""From a variant in a pipeline file to an operator ready to be loaded."""

import contextlib
import importlib
import inspect
from collections.abc import Iterable
from typing import Any

from operators.models.model_errors import BadArguments, BadOperator, ModelError
from operators.models.references import nearest, resolve
from operators.user_frames import sentence, trace, with_frames
from schemas.pipeline import Variant


def load_operator(variant: Variant) -> object:
    """The variant's operator, made with its arguments; its ``load(device)`` was not called yet.

    Raises a ``ModelError`` whose sentence begins with the variant. For what else the operator's own
    module or ``__init__`` raises it names the frames of the user's code.
    """
    try:
        made = resolve(variant.operator)
        _check_class(made, variant.operator)
        _check_arguments(made, variant)
        operator: object = made(**variant.arguments)
    except ModelError as error:
        raise type(error)(f"{variant.key}: {error}", error.trace) from error
    except (Exception, SystemExit) as error:
        text = f"{variant.key}: {variant.operator} raised {sentence(error)}"
        raise BadOperator(with_frames(text, error), trace(error)) from error
    return operator


def preload(variants: Iterable[Variant]) -> None:
    """Import what the variants' operators will need, as far as it can be known and is here.

    Importing torch holds Python's lock for a second or more. A worker does it before its first
    report: done while it serves, it would silence the reports and let it pass for dead. An
    operator names such libraries in its class attribute ``libraries``.
    """
    for variant in variants:
        # What is missing or misspelt is told by ``load_operator``, with the variant's name.
        with contextlib.suppress(Exception):
            for name in getattr(resolve(variant.operator), "libraries", ()):
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
