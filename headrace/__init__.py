"""The application package: command line and wiring; for Python ``headrace.Client``, simulations
that return records, ``Sized`` for operators, and ``run_query`` for their unit tests."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.roles.compiled import check_compiled

if TYPE_CHECKING:
    from headrace.client.client import Client
    from headrace.errors import ClientClosed, NoAnswer
    from headrace.simulation.experiments import (
        capacity,
        compare,
        plannable_demand,
        simulate,
        simulated_queries,
        simulated_seconds,
    )
    from headrace.testing import run_query
    from operators.serving.sized import Sized

check_compiled(Path(__file__).parents[1])

__all__ = [
    "Client",
    "ClientClosed",
    "NoAnswer",
    "Sized",
    "capacity",
    "compare",
    "plannable_demand",
    "run_query",
    "simulate",
    "simulated_queries",
    "simulated_seconds",
]

_CLIENT, _EXPERIMENTS = "headrace.client.client", "headrace.simulation.experiments"
_PLACES = dict.fromkeys(("Client", "ClientClosed", "NoAnswer"), _CLIENT) | {
    name: _EXPERIMENTS
    for name in (
        "capacity",
        "compare",
        "plannable_demand",
        "simulate",
        "simulated_queries",
        "simulated_seconds",
    )
}
_PLACES |= {"run_query": "headrace.testing", "Sized": "operators.serving.sized"}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `headrace --help` does not load the Kafka client.
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
