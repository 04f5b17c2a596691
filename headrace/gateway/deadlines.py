"""How long a caller waits, from the headers and parameters that tell it. Pure.

The smallest of all wins. A value of 0 tells nothing, as Triton and Envoy have it.
"""

import math
from collections.abc import Mapping
from typing import Any

from headrace.gateway.statuses import Ending, Unserved

# Header, by its name in lower case: the seconds of its unit.
HEADERS = {
    "headrace-timeout-ms": 1e-3,
    "x-request-timeout-seconds": 1.0,  # Ray Serve
    "x-envoy-expected-rq-timeout-ms": 1e-3,  # Envoy and Istio, so that upstreams may end early
}
PARAMETER = "timeout"  # of an inference request, as tritonclient sends it
PARAMETER_UNIT_S = 1e-6


def caller_timeout_s(
    headers: Mapping[str, str],
    parameters: Mapping[str, Any],
    grpc_remaining_s: float | None = None,
) -> float | None:
    """Return how long the caller waits at most, in seconds; None: the caller does not say.

    ``headers`` are looked up by names in lower case. Raises ``Unserved`` for a value that is no
    number of 0 or more.
    """
    told = [grpc_remaining_s] if grpc_remaining_s is not None else []
    told += [
        _seconds(f"header {name}", headers[name], unit_s)
        for name, unit_s in HEADERS.items()
        if name in headers
    ]
    if PARAMETER in parameters:
        told.append(_seconds("parameter timeout", parameters[PARAMETER], PARAMETER_UNIT_S))
    return min((each for each in told if each != 0.0), default=None)


def _seconds(what: str, said: Any, unit_s: float) -> float:
    try:
        seconds = math.nan if isinstance(said, bool) else float(said) * unit_s
    except (OverflowError, TypeError, ValueError):
        seconds = math.nan
    if not 0.0 <= seconds < math.inf:
        unit = {1.0: "seconds", 1e-3: "milliseconds", 1e-6: "microseconds"}[unit_s]
        raise Unserved(
            Ending.BAD_REQUEST, f"{what} is {str(said)[:40]!r}; it must be a number of {unit}"
        )
    return seconds


def query_deadline_s(now: float, timeout_s: float | None, slo_s: float) -> float | None:
    """Return the deadline of the query, epoch seconds; None: that of its SLO.

    A caller may shorten the SLO, never stretch it: gRPC clients and meshes send deadlines of
    minutes by default.
    """
    return now + timeout_s if timeout_s is not None and timeout_s < slo_s else None
