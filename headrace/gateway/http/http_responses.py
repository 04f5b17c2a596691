"""HTTP responses of the gateway, from an inference or the reason that there is none."""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from headrace.gateway.model import Served
from headrace.gateway.protocol.requests import HEADER_LENGTH, InferRequest, rendered
from headrace.gateway.protocol.statuses import Status

_encode = msgspec.json.Encoder().encode


def inference(served: Served, asked: InferRequest) -> web.Response:
    """Return the HTTP response of an inference response; raise ``Unserved``."""
    body, header_length = rendered(served.response, asked)
    headers = dict(served.status.headers)
    kind = "application/json"
    if header_length is not None:
        headers[HEADER_LENGTH] = str(header_length)
        kind = "application/octet-stream"
    return web.Response(body=body, content_type=kind, headers=headers)


def error_response(status: Status) -> web.Response:
    """Return the HTTP response for a request that was not served."""
    return json_response({"error": status.text}, status.ending.http, status.headers)


def refused(error: web.HTTPException) -> web.Response:
    """Return the HTTP response for a request that aiohttp refused."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        told = f"{error.method} is not served here, only {allowed}"
        return json_response({"error": told}, error.status, {"Allow": allowed})
    told = f"{error.status}: {error.reason}"
    if isinstance(error, web.HTTPNotFound):
        told = "the gateway serves nothing at this path; queries go to /v2/models/NAME/infer"
    return json_response({"error": told}, error.status)


def json_response(
    row: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a response in JSON."""
    return web.Response(
        body=_encode(row), status=status, content_type="application/json", headers=headers
    )
