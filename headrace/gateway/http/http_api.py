"""The Open Inference Protocol over HTTP: paths, bodies and statuses in aiohttp.

Pure modules make the decisions; this module reads, waits and writes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from headrace.gateway.body_budget import HeldBody
from headrace.gateway.front import VERSION, Front
from headrace.gateway.http.answer_api import AnswerApi
from headrace.gateway.http.http_responses import error_response, inference, json_response, refused
from headrace.gateway.http.listeners import Limits
from headrace.gateway.http.loop_lag import LoopLag
from headrace.gateway.model import Model
from headrace.gateway.protocol.callers import Caller, caller_of, echoed
from headrace.gateway.protocol.content_codings import unpacked
from headrace.gateway.protocol.payloads import configuration, model_metadata
from headrace.gateway.protocol.requests import HEADER_LENGTH, InferRequest, parsed
from headrace.gateway.protocol.statuses import Ending, Unserved
from headrace.gateway.request_counts import HTTP

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")  # for probes, without a token
COMPRESSED_FROM = 1024  # bytes of a response


class HttpApi:
    """The handlers, which enforce the limits on bodies."""

    def __init__(self, front: Front, limits: Limits) -> None:
        self._front = front
        self._body_bytes = limits.body_bytes
        self._body_s = limits.body_s
        self._answers = AnswerApi(front)
        self._loop = asyncio.get_running_loop()
        self._lag = LoopLag(self._loop)

    def app(self) -> web.Application:
        """Return the application; bodies above ``body_bytes``, decompressed, get 413."""
        app = web.Application(client_max_size=self._body_bytes, middlewares=[self._guard])
        model = "/v2/models/{model}"
        places = (model, f"{model}/versions/{{version}}")
        for place in places:  # first: aiohttp tries the routes in turn
            app.router.add_post(f"{place}/infer", self._infer)
        app.router.add_get("/v2", self._server)
        app.router.add_get("/v2/health/live", self._live)
        app.router.add_get("/v2/health/ready", self._ready)
        app.router.add_post("/v2/repository/index", self._index)
        app.router.add_get(f"{model}/answers/{{id:.+}}", self._answers.one)
        app.router.add_get(f"{model}/answers", self._answers.stream)
        for place in places:
            app.router.add_get(place, self._metadata)
            app.router.add_get(f"{place}/ready", self._model_ready)
            app.router.add_get(f"{place}/config", self._config)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Admit known callers, and turn every error into JSON."""
        try:
            if request.path not in OPEN_PATHS:
                self._front.check(request.headers.get("Authorization", ""))
            response = await handler(request)
        except Unserved as error:
            response = error_response(error.status)
        except web.HTTPException as error:
            response = refused(error)
        if request.content.exception() is not None:
            _end_unreadable(request, response)
        return response

    # ------------------------------------------------------------------ health and metadata

    async def _live(self, _: web.Request) -> web.Response:
        why = self._front.live()
        return json_response({"live": not why}, 503 if why else 200)

    async def _ready(self, _: web.Request) -> web.Response:
        return _readiness({}, self._front.ready())

    async def _model_ready(self, request: web.Request) -> web.Response:
        model = self._model(request)
        return _readiness({"name": model.name}, self._front.ready() and model.fault())

    async def _server(self, _: web.Request) -> web.Response:
        return json_response(self._front.server())

    async def _metadata(self, request: web.Request) -> web.Response:
        model = self._model(request)
        return json_response(model_metadata(model.name, model.signature))

    async def _config(self, request: web.Request) -> web.Response:
        model = self._model(request)
        return json_response(configuration(model.name, model.signature))

    async def _index(self, request: web.Request) -> web.Response:
        try:
            with self._held(request) as held:
                body = await self._body(request, held)
                said = msgspec.json.decode(body or b"{}", type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            raise Unserved(Ending.BAD_REQUEST, f"the body is no JSON object: {error}") from None
        return json_response(self._front.index(ready_only=said.get("ready") is True))

    def _model(self, request: web.Request) -> Model:
        place = request.match_info
        return self._front.model(place["model"], place.get("version", ""))

    # ------------------------------------------------------------------ inference

    async def _infer(self, request: web.Request) -> web.Response:
        waited_s, clock = self._lag.waited_s(), time.perf_counter()
        began_s = time.time() - waited_s
        ending = Ending.FAILED
        try:
            response, ending = await self._inferred(request, began_s)
        except Unserved as error:
            ending = error.status.ending
            response = error_response(error.status)
        except web.HTTPRequestEntityTooLarge as error:
            ending = Ending.TOO_LARGE
            response = json_response({"error": error.text}, 413)
        except asyncio.CancelledError:
            ending = Ending.LEFT
            raise
        finally:
            took_s, name = time.perf_counter() - clock, request.match_info["model"]
            # Once the response is sent.
            self._loop.call_soon(self._front.counts.ended, name, HTTP, ending, took_s)
        response.headers.update(echoed(request.headers))
        return response

    async def _inferred(self, request: web.Request, began_s: float) -> tuple[web.Response, Ending]:
        self._front.check_open()
        model = self._model(request)
        with self._held(request) as held:
            came_whole = request.content.is_eof()
            body = await self._body(request, held)
            upload_s = 0.0 if came_whole else max(time.time() - began_s, 0.0)
            asked = parsed(body, request.headers.get(HEADER_LENGTH))
            caller = caller_of(request.headers, asked, model.pipeline).after(upload_s)
            began_s += upload_s
            if _prefers_async(request):
                return await _accepted(model, asked, caller, began_s), Ending.ACCEPTED
            response = inference(await model.infer(asked, caller, began_s), asked)
        if len(response.body) >= COMPRESSED_FROM:  # type: ignore[arg-type]
            response.enable_compression()
        return response, Ending.OK

    def _held(self, request: web.Request) -> HeldBody:
        """Return the charge for the request's body: its largest size, until it has arrived."""
        return self._front.bodies.held(_most_bytes(request, self._body_bytes))

    async def _body(self, request: web.Request, held: HeldBody) -> bytes:
        body = await self._read(request)
        coding = request.headers.get("Content-Encoding")
        if coding is not None:
            body = unpacked(body, coding, self._body_bytes)
        held.shrink(len(body))
        return body

    async def _read(self, request: web.Request) -> bytes:
        if request.content.is_eof():  # it came with the head, and needs no timer
            return await request.read()
        try:
            async with asyncio.timeout(self._body_s):
                return await request.read()
        except TimeoutError:
            raise Unserved(
                Ending.SLOW_CLIENT, f"the body did not arrive within {self._body_s:g} s"
            ) from None
        except web.RequestPayloadError as error:  # cut short
            raise Unserved(Ending.BAD_REQUEST, f"the body cannot be read: {error}") from None


def _most_bytes(request: web.Request, most: int) -> int:
    """Return the most bytes that the body may have, decompressed."""
    if not request.body_exists:
        return 0
    told = None if "Content-Encoding" in request.headers else request.content_length
    return most if told is None else min(told, most)


def _end_unreadable(request: web.Request, response: web.StreamResponse) -> None:
    """Close the connection after the response to a body that cannot be read.

    Otherwise aiohttp would look for the rest of the body, meet the error again and log its trace
    for every such request.
    """
    request.content.feed_eof()
    response.force_close()


def _prefers_async(request: web.Request) -> bool:
    """Return whether a header ``Prefer`` names respond-async; it may come several times and in any
    case (RFC 7240)."""
    return any("respond-async" in said.lower() for said in request.headers.getall("Prefer", ()))


async def _accepted(
    model: Model, asked: InferRequest, caller: Caller, began_s: float
) -> web.Response:
    name = await model.accept(asked, caller, began_s)
    place = f"/v2/models/{model.name}/answers/{quote(name, safe='')}?since={began_s:.3f}"
    row = {"model_name": model.name, "model_version": VERSION, "id": name, "answer": place}
    return json_response(row, 202, {"Location": place, "Preference-Applied": "respond-async"})


def _readiness(row: dict[str, Any], why: str) -> web.Response:
    said = {"reason": why} if why else {}
    return json_response({**row, "ready": not why, **said}, 503 if why else 200)
