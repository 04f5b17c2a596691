"""From a variant in a pipeline file to an operator ready to be loaded."""

import inspect
from typing import Any

from operators.models.errors import BadArguments, BadOperator
from operators.models.references import nearest, resolve
from schemas.pipeline import Variant


def load_operator(variant: Variant) -> object:
    """The variant's operator, made with its arguments; its ``load(device)`` was not called yet.

    Raises ``BadReference``, ``BadArguments``, ``BadOperator`` or ``MissingExtra``, each a sentence
    that names the variant.
    """
    made = resolve(variant.operator)
    _check_class(made, variant)
    _check_arguments(made, variant)
    operator: object = made(**variant.arguments)
    return operator


def _check_class(made: Any, variant: Variant) -> None:
    if not inspect.isclass(made):
        raise BadOperator(
            f"{variant.key}: {variant.operator} is no class; wrap a function with "
            f"operators.models.python:Python"
        )
    lacking = [m for m in ("load", "predict") if not callable(getattr(made, m, None))]
    if lacking:
        raise BadOperator(
            f"{variant.key}: {variant.operator} has no method {' and no '.join(lacking)}; an "
            f"operator needs load(device) and predict(batch)"
        )


def _check_arguments(made: Any, variant: Variant) -> None:
    signature = inspect.signature(made)
    try:
        signature.bind(**variant.arguments)
    except TypeError as error:
        known = list(signature.parameters)
        unknown = [name for name in variant.arguments if name not in known]
        hint = nearest(unknown[0], known) if unknown else f"; it takes {', '.join(known)}"
        raise BadArguments(f"{variant.key}: {variant.operator}: {error}{hint}") from error
