"""The Open Inference Protocol over gRPC, with health and reflection, and its port."""

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from headrace.gateway.certificates import Certificates
from headrace.gateway.front import Front
from headrace.gateway.grpc.grpc_calls import abort, decoded_message, guarded, sendable
from headrace.gateway.grpc.health_and_reflection import (
    DESCRIPTORS,
    SERVICES,
    GatewayHealth,
    Reflection,
    health_handlers,
    reflection_handlers,
)
from headrace.gateway.grpc.message_waits import MessageWaits
from headrace.gateway.grpc.queue_wait import QueueWait
from headrace.gateway.http.listeners import Limits, address, taken
from headrace.gateway.model import Model
from headrace.gateway.protocol import grpc_messages
from headrace.gateway.protocol.callers import caller_of, echoed
from headrace.gateway.protocol.descriptors import METHODS, SERVICE, message_classes, pool
from headrace.gateway.protocol.payloads import configuration, model_metadata
from headrace.gateway.protocol.statuses import Ending, Unserved, cancelled
from headrace.gateway.request_counts import GRPC

SPARE_CALLS = 1000  # of health, metadata and reflection, and watches
# A connection's age at its end, in times of ``Limits.idle_s``. At this age gRPC asks the client for
# its end, and serves what is on the way; a connection that idles it would cut off at once.
AGE_IN_IDLE_TIMES = 10
MOST_INT = 2**31 - 1  # of gRPC's options; protocol buffers hold no larger message, either
Reply = Callable[[bytes, Any], Awaitable[Any]]


class GrpcApi:
    """The service's handlers."""

    def __init__(self, front: Front, queue: QueueWait, message_s: float) -> None:
        self._front = front
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._waits = MessageWaits(message_s)
        self._pool = pool(DESCRIPTORS)
        self._messages = message_classes(self._pool)
        self._health = GatewayHealth(front)
        self._replies: dict[str, Reply] = {
            "ServerLive": self._live, "ServerReady": self._ready, "ModelReady": self._model_ready,
            "ServerMetadata": self._server, "ModelMetadata": self._metadata,
            "ModelInfer": self._infer, "ModelConfig": self._config,
            "RepositoryIndex": self._index,
        }  # fmt: skip

    def add_to(self, server: Any) -> None:
        """Add the services to a ``grpc.aio`` server."""
        handlers = {method: self._handler(method) for method in METHODS}
        inference = grpc.method_handlers_generic_handler(SERVICE, handlers)
        services = Reflection((SERVICE, *SERVICES), self._pool)
        reflection = reflection_handlers(services, self._waits)
        server.add_generic_rpc_handlers(
            (
                guarded(self._front, inference),
                guarded(self._front, reflection),
                health_handlers(self._health, self._waits),
            )
        )

    async def update_health(self) -> None:
        """Publish the state of the gateway and its models to watchers of the health service."""
        await self._health.tell("", self._front.ready())
        await self._health.tell(SERVICE, self._front.ready())
        for name, model in self._front.models.items():
            await self._health.tell(name, self._front.ready() and model.fault())

    def _handler(self, method: str) -> Any:
        reply = self._replies[method]

        async def handled(_: Any, context: Any) -> Any:
            try:
                return await reply(await self._waits.only(context), context)
            except Unserved as error:
                await abort(context, error.status)

        # For gRPC's handlers of one message, that message may take any time.
        return grpc.stream_unary_rpc_method_handler(
            handled,
            response_serializer=getattr(self._messages, f"{method}Response").SerializeToString,
        )

    # ------------------------------------------------------------------ health and metadata

    async def _live(self, _: bytes, __: Any) -> Any:
        return self._messages.ServerLiveResponse(live=not self._front.live())

    async def _ready(self, _: bytes, __: Any) -> Any:
        return self._messages.ServerReadyResponse(ready=not self._front.ready())

    async def _model_ready(self, raw: bytes, _: Any) -> Any:
        model = self._model(self._messages.ModelReadyRequest, raw)
        why = self._front.ready() and model.fault()
        return self._messages.ModelReadyResponse(ready=not why)

    async def _server(self, _: bytes, __: Any) -> Any:
        return self._messages.ServerMetadataResponse(**self._front.server())

    async def _metadata(self, raw: bytes, _: Any) -> Any:
        model = self._model(self._messages.ModelMetadataRequest, raw)
        return self._messages.ModelMetadataResponse(**model_metadata(model.name, model.signature))

    async def _config(self, raw: bytes, _: Any) -> Any:
        model = self._model(self._messages.ModelConfigRequest, raw)
        row = configuration(model.name, model.signature)
        return self._messages.ModelConfigResponse(config=self._messages.ModelConfig(**row))

    async def _index(self, raw: bytes, _: Any) -> Any:
        request = decoded_message(self._messages.RepositoryIndexRequest, raw)
        rows = self._front.index(ready_only=request.ready)
        return self._messages.RepositoryIndexResponse(models=rows)

    def _model(self, kind: Any, raw: bytes) -> Model:
        request = decoded_message(kind, raw)
        return self._front.model(request.name, request.version)

    # ------------------------------------------------------------------ inference

    async def _infer(self, raw: bytes, context: Any) -> Any:
        waited_s, clock = self._queue.waited_s(), time.perf_counter()
        name, ending, bodies = "", Ending.FAILED, self._front.bodies
        try:
            bodies.take(len(raw))
            try:
                request = decoded_message(self._messages.ModelInferRequest, raw)
                name = request.model_name
                reply = await self._inferred(request, context, waited_s)
            finally:
                bodies.give_back(len(raw))
            ending = Ending.OK
            return reply
        except Unserved as error:
            ending = error.status.ending
            raise
        except asyncio.CancelledError:
            ending = cancelled(context.time_remaining())
            raise
        finally:
            took_s = time.perf_counter() - clock
            # Once the response is sent.
            self._loop.call_soon(self._front.counts.ended, name, GRPC, ending, took_s)

    async def _inferred(self, request: Any, context: Any, waited_s: float) -> Any:
        began_s = time.time() - waited_s
        left_s = context.time_remaining()
        timeout_s = None if left_s is None else left_s + waited_s
        headers = dict(context.invocation_metadata() or ())
        self._front.check_open()
        model = self._front.model(request.model_name, request.model_version)
        asked = grpc_messages.parsed(request)
        caller = caller_of(headers, asked, model.pipeline, timeout_s)
        if waited_s:
            model.check_wait(waited_s, caller)
        query = model.ask(asked, caller, began_s)
        trailing = sendable(echoed(headers))  # while the query is on its way
        served = await model.answered(query, asked, caller, began_s)
        if served.status.marks:
            trailing |= served.status.headers
        if trailing:
            context.set_trailing_metadata(tuple(trailing.items()))
        return grpc_messages.rendered(served.response, self._messages)


async def report_health(api: GrpcApi, every_s: float) -> None:
    """Update the health service at an interval, until cancelled."""
    while True:
        await api.update_health()
        await asyncio.sleep(every_s)


def grpc_server(limits: Limits, models: int, *, share: bool) -> Any:
    """Return a ``grpc.aio`` server without services; ``models`` is their number."""
    # Above the models' limits: gRPC's own refusal does not say when to retry.
    most = min(2 * models * limits.requests + SPARE_CALLS, MOST_INT)
    idle_ms = min(round(limits.idle_s * 1e3), MOST_INT)
    return grpc.aio.server(
        maximum_concurrent_rpcs=most,
        options=(
            ("grpc.max_receive_message_length", min(limits.body_bytes, MOST_INT)),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", most),
            ("grpc.so_reuseport", int(share)),
            ("grpc.max_allowed_incoming_connections", limits.grpc_connections),
            ("grpc.server_handshake_timeout_ms", idle_ms),
            ("grpc.max_connection_age_ms", min(AGE_IN_IDLE_TIMES * idle_ms, MOST_INT)),
            ("grpc.keepalive_time_ms", idle_ms),  # a client that vanished keeps no call open
            ("grpc.keepalive_timeout_ms", idle_ms),
            ("grpc.http2.ping_timeout_ms", idle_ms),
        ),
    )


async def start_grpc(server: Any, host: str, port: int, served: Certificates | None) -> int:
    """Listen and serve; return the port. Raises ``PortTaken``."""
    place = address(host, port)
    try:
        bound = _secure(server, place, served) if served else server.add_insecure_port(place)
    except RuntimeError as error:
        raise taken("gRPC", host, port, error) from error
    if not bound:
        raise taken("gRPC", host, port, OSError(errno.EADDRINUSE, "address in use"))
    await server.start()
    return int(bound)


def _secure(server: Any, place: str, served: Certificates) -> Any:
    sent = served.pem

    def renewed() -> Any:
        """Return the certificate if it has changed, else None; called at each handshake."""
        nonlocal sent
        if served.pem is sent:
            return None
        sent = served.pem
        return _configuration(served)

    credentials = grpc.dynamic_ssl_server_credentials(
        _configuration(served), renewed, require_client_authentication=sent.clients is not None
    )
    return server.add_secure_port(place, credentials)


def _configuration(served: Certificates) -> Any:
    certificate, key, clients = served.pem
    return grpc.ssl_server_certificate_configuration(((key, certificate),), clients)
