"""Responses to requests that match no route."""

import json

import pytest
from aiohttp import web

from headrace.gateway.http.http_responses import refused


@pytest.mark.parametrize(
    ("error", "status", "said", "allowed"),
    [
        (web.HTTPNotFound(), 404, "queries go to /v2/models/NAME/infer", None),
        (
            web.HTTPMethodNotAllowed("GET", ["POST"]),
            405,
            "GET is not served here, only POST",
            "POST",
        ),
        (web.HTTPExpectationFailed(), 417, "417: Expectation Failed", None),
    ],
)
def test_a_refused_request_is_told_what_is_served(
    error: web.HTTPException, status: int, said: str, allowed: str | None
) -> None:
    """/ and Triton's /v2/models/NAME/stats got "404: Not Found"."""
    response = refused(error)
    assert isinstance(response.body, bytes)
    assert response.status == status
    assert said in json.loads(response.body)["error"]
    assert response.headers.get("Allow") == allowed
