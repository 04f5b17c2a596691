"""Shared parts of the operators that call a model server: faults, tokens, and users' functions."""

import os
from collections.abc import Callable
from typing import Any

from operators.models.model_errors import BadArguments
from operators.models.module_references import resolve

READY_WITHIN_S = 30.0  # a server, when its operator is loaded
LOOK_AGAIN_S = 0.2
SHOWN = 200  # characters of a server's message in a sentence


class ServerFault(Exception):
    """A response that is no answer; its item fails with the message."""


def bearer(variable: str) -> str:
    """Return the header ``Authorization`` with the token in an environment variable; "" for none.

    Raises ``BadArguments`` if the variable is not set.
    """
    if not variable:
        return ""
    if variable not in os.environ:
        raise BadArguments(f"token names the variable {variable}, which is not set; set it")
    return f"Bearer {os.environ[variable]}"


def function(reference: str, without: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function "module:function"; ``without`` for "". Raises ``BadReference``."""
    found: Callable[[Any], Any] = resolve(reference) if reference else without
    return found


def unchanged(value: Any) -> Any:
    """Return the value."""
    return value


def server_message(text: str) -> str:
    """Return a server's message on one line, truncated."""
    return " ".join(text.split())[:SHOWN]
