"""Send spans to a collector: OTLP over HTTP, in JSON."""

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from headrace.errors import Unsuccessful
from headrace.traces.answer_spans import attributes

WITHIN_S = 10.0
PATH = "/v1/traces"


def request_of(spans: Sequence[dict[str, Any]], pipeline: str) -> dict[str, Any]:
    """Return an export request with the spans of a pipeline."""
    resource = {"service.name": pipeline, "service.namespace": "headrace"}
    scope = {"name": "headrace", "version": version("headrace")}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": attributes(resource)},
                "scopeSpans": [{"scope": scope, "spans": list(spans)}],
            }
        ]
    }


def send(endpoint: str, request: dict[str, Any]) -> None:
    """Send an export request; raise ``Unsuccessful`` if the collector does not take it."""
    url = endpoint.rstrip("/")
    url = url if url.endswith(PATH) else url + PATH
    posted = urllib.request.Request(
        url, json.dumps(request).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(posted, timeout=WITHIN_S) as response:
            response.read()
    except (OSError, ValueError) as error:  # URLError and HTTPError are OSErrors
        raise Unsuccessful(
            f"the collector at {url} did not take {len(_spans(request))} spans ({error}); check "
            "that it listens for OTLP over HTTP there"
        ) from error


def _spans(request: dict[str, Any]) -> Sequence[Any]:
    found: Sequence[Any] = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return found
