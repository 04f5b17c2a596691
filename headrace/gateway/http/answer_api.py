"""Answers by id over HTTP: long poll, and a stream of server-sent events.

Answers are on the results topic, so every gateway can return them for the hour that the topic
keeps.
"""

import asyncio
import contextlib
import math
import time

import msgspec
from aiohttp import web

from headrace.gateway.front import Front
from headrace.gateway.http.http_responses import error_response, inference, json_response
from headrace.gateway.model import Model
from headrace.gateway.protocol.requests import InferRequest
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.result_watch import AnswerStream
from schemas.records import Answer

MOST_WAIT_S = 60.0
KEPT_S = 3600.0  # of a query in the input topic (streams/topics.py): it may be answered as long
AHEAD_S = 3600.0  # of this clock, at most, is that of the gateway which took a query
HEARTBEAT_S = 15.0  # of a stream, so that proxies keep it and a reader that left is noticed
OCTETS = "application/octet-stream"
_JSON = InferRequest(inputs=())
_BINARY = InferRequest(inputs=(), binary_default=True)


class AnswerApi:
    """The handlers of ``/v2/models/{model}/answers``."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def one(self, request: web.Request) -> web.Response:
        """Return the answer to a query, with the status that a waiting caller would have got.

        Without an answer after ``wait`` seconds: 202 while one may come, else 404. The outputs are
        in binary form where the header ``Accept`` names octets.
        """
        model = self._front.model(request.match_info["model"])
        name = request.match_info["id"]
        wait_s = min(_number(request, "wait") or 0.0, MOST_WAIT_S)
        now = time.time()
        since_s = _since_s(request, now)
        answer = await self._front.unless_draining(model.answers.answer(name, wait_s, since_s))
        if answer is not None:
            asked = _BINARY if OCTETS in request.headers.get("Accept", "") else _JSON
            return inference(model.served(answer, asked), asked)
        self._front.check_open()
        if model.holds(name) or (since_s is not None and now < since_s + KEPT_S):
            row = {"id": name, "state": "pending"}
            return json_response(row, 202, {"Location": str(request.rel_url), "Retry-After": "1"})
        raise Unserved(
            Ending.UNKNOWN,
            f"no answer to {name[:80]!r} is on the results topic, which keeps an hour; check the "
            "id, and ask with the `since` of the Location",
        )

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Send new answers whose ids begin with ``prefix`` as server-sent events, until the gateway
        shuts down."""
        model = self._front.model(request.match_info["model"])
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        with model.watch.stream(request.query.get("prefix", "")) as stream:
            await response.prepare(request)
            await self._front.unless_draining(_send_events(response, model, stream))
        return response


async def _send_events(response: web.StreamResponse, model: Model, stream: AnswerStream) -> None:
    with contextlib.suppress(ConnectionError):
        while not stream.overrun:
            await response.write(await _next_event(model, stream))


async def _next_event(model: Model, stream: AnswerStream) -> bytes:
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            return answer_event(model, await stream.answers.get())
    except TimeoutError:
        return b": still here\n\n"


def answer_event(model: Model, answer: Answer) -> bytes:
    """Return the event of an answer: its id, outcome, status and body."""
    try:
        response = inference(model.served(answer, _JSON), _JSON)
    except Unserved as error:
        response = error_response(error.status)
    row = {
        "id": answer.id, "outcome": answer.outcome, "status": response.status,
        "body": msgspec.Raw(response.body),  # type: ignore[arg-type]
    }  # fmt: skip
    return b"event: answer\ndata: " + msgspec.json.encode(row) + b"\n\n"


def _since_s(request: web.Request, now: float) -> float | None:
    since_s = _number(request, "since")
    if since_s is not None and since_s > now + AHEAD_S:
        raise Unserved(
            Ending.BAD_REQUEST,
            f"since is {request.query['since'][:40]!r}, which is in the future; it is when the "
            "query was sent, in seconds since 1970, as in the Location",
        )
    return since_s


def _number(request: web.Request, name: str) -> float | None:
    said = request.query.get(name)
    if said is None:
        return None
    try:
        number = float(said)
    except ValueError:
        number = math.nan
    if not 0.0 <= number < math.inf:
        raise Unserved(
            Ending.BAD_REQUEST, f"{name} is {said[:40]!r}; it must be a number of seconds"
        )
    return number
