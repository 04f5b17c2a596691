"""The front door: wiring and the terminal; from Python, ``headrace.Client``."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.roles.compiled import check

if TYPE_CHECKING:
    from headrace.client.client import Client
    from headrace.errors import ClientClosed, NoAnswer

check(Path(__file__).parents[1])

__all__ = ["Client", "ClientClosed", "NoAnswer"]


def __getattr__(name: str) -> Any:
    # On first use, so that `headrace --help` does not wait for the Kafka client.
    if name in __all__:
        return getattr(importlib.import_module("headrace.client.client"), name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
