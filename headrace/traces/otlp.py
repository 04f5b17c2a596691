"""Send spans to a collector: OTLP over HTTP, in JSON."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPException, InvalidURL
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from headrace.errors import Unsuccessful
from headrace.traces.answer_spans import attributes

WITHIN_S = 10.0
PATH = "/v1/traces"
# The statuses after which a request may be sent again, by OTLP's specification.
RETRYABLE = frozenset((429, 502, 503, 504))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an error. urllib would follow it with a GET, which has no spans."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


_opener = urllib.request.build_opener(_NoRedirects)


class NotTaken(Unsuccessful):
    """A collector did not take ``spans`` of a request's spans; one sentence.

    ``again``: the same request may be taken later, ``after_s`` seconds from now if that was said.
    """

    def __init__(self, text: str, spans: int, *, again: bool, after_s: float | None = None) -> None:
        super().__init__(text)
        self.spans, self.again, self.after_s = spans, again, after_s


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


def url_of(endpoint: str) -> str:
    """Return the address for spans at an endpoint; raise ``Unsuccessful`` if it is none of HTTP."""
    if not _is_http(endpoint):
        raise Unsuccessful(
            f"the collector's address is {endpoint!r}; write such as http://localhost:4318"
        )
    url = endpoint.rstrip("/")
    return url if url.endswith(PATH) else url + PATH


def _is_http(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        host, _ = (parts.hostname or "").encode("idna"), parts.port  # raise where they are none
    except ValueError:
        return False
    readable = endpoint.isprintable() and " " not in endpoint
    return parts.scheme in ("http", "https") and bool(host) and readable


def send(endpoint: str, request: dict[str, Any]) -> None:
    """Send an export request once; raise ``NotTaken`` if the collector does not take all spans."""
    url, spans = url_of(endpoint), len(spans_in(request))
    posted = urllib.request.Request(
        url, json.dumps(request).encode(), {"Content-Type": "application/json"}
    )
    try:
        with _opener.open(posted, timeout=WITHIN_S) as response:
            _check(url, spans, response.read())
    except urllib.error.HTTPError as error:
        with error:
            after_s = retry_after_s(error.headers.get("Retry-After"), time.time())
        again = error.code in RETRYABLE
        raise NotTaken(_refusal(url, spans, error), spans, again=again, after_s=after_s) from None
    except (OSError, HTTPException, ValueError) as error:
        raise NotTaken(_refusal(url, spans, error), spans, again=_passes(error)) from None


def _passes(error: Exception) -> bool:
    """Return whether an error may be transient: no connection, or a broken one. An invalid address
    and a bad certificate are permanent."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return not isinstance(cause, ValueError | InvalidURL)  # a bad certificate is a ValueError


def _refusal(url: str, spans: int, error: Exception) -> str:
    return (
        f"the collector at {url} did not take {spans} spans ({error}); check that it listens for "
        "OTLP over HTTP there"
    )


def _check(url: str, spans: int, body: bytes) -> None:
    """Raise ``NotTaken`` if the collector's response counts rejected spans."""
    try:
        told = json.loads(body).get("partialSuccess") or {}
        rejected = min(spans, int(told.get("rejectedSpans") or 0))
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
        return  # no response of OTLP in JSON: nothing is known to be rejected
    if rejected > 0:
        why = str(told.get("errorMessage") or "no reason given")[:200]
        text = f"the collector at {url} rejected {rejected} of {spans} spans ({why})"
        raise NotTaken(text, rejected, again=False)


def retry_after_s(header: str | None, now: float) -> float | None:
    """Return the seconds in a header ``Retry-After``, which has them or a date; None for neither.

    ``now``: epoch seconds.
    """
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now)
    except (OverflowError, ValueError):
        return None


def spans_in(request: dict[str, Any]) -> Sequence[Any]:
    """Return the spans of an export request."""
    found: Sequence[Any] = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return found
