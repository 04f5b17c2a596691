"""gRPC's own services: reflection, and health, which ends its streams at the gateway's shutdown."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from headrace.gateway.front import Front
from headrace.gateway.grpc.grpc_calls import abort, authorization, decoded_message, undecodable
from headrace.gateway.grpc.message_waits import MessageWaits
from headrace.gateway.protocol.statuses import Ending, Unserved

SERVICES = (health.SERVICE_NAME, reflection.SERVICE_NAME)
DESCRIPTORS = (health_pb2.DESCRIPTOR.serialized_pb, reflection_pb2.DESCRIPTOR.serialized_pb)
_Health = health_pb2.HealthCheckResponse

MOST_STRANGERS = (
    100  # calls of health without a token at a time, so that they occupy no others' places
)


class WholeWrites:
    """Writes to a call one after the other. A write goes on when its writer is cancelled, and gRPC
    ends a call that begins another one meanwhile."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._writing: asyncio.Future[None] | None = None

    async def write(self, message: Any) -> None:
        """Write a message once the last one is written."""
        if self._writing is not None:
            await self._writing
        self._writing = asyncio.ensure_future(self._context.write(message))
        self._writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._writing)


class GatewayHealth(health.aio.HealthServicer):  # type: ignore[misc]
    """The health of the gateway, of its service and of its models."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._front = front
        self._strangers = 0  # calls

    @contextlib.contextmanager
    def place(self, metadata: Any) -> Iterator[None]:
        """Count a call while its ``with`` block runs, unless it has a token.

        Entering the block raises ``Unserved`` above ``MOST_STRANGERS``.
        """
        if self._front.tokens.admit(authorization(metadata)):
            yield
            return
        if self._strangers >= MOST_STRANGERS:
            raise Unserved(
                Ending.OVER_CAPACITY, f"{MOST_STRANGERS} calls without a token are open here"
            )
        self._strangers += 1
        try:
            yield
        finally:
            self._strangers -= 1

    async def Watch(self, request: Any, context: Any) -> None:
        """Send each state of a service until the gateway shuts down."""
        states = WholeWrites(context)
        await self._front.unless_draining(super().Watch(request, states))
        await states.write(_Health(status=_Health.NOT_SERVING))

    async def tell(self, service: str, why: str) -> None:
        """Set the state of a service; ``why`` is the reason that it cannot serve, or ""."""
        await self.set(service, _Health.NOT_SERVING if why else _Health.SERVING)


def health_handlers(servicer: GatewayHealth, waits: MessageWaits) -> Any:
    """Return the handlers of the health service, for messages that are not decoded yet."""

    def decoding(kind: Any, reply: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        async def handled(_: Any, context: Any) -> Any:
            try:
                with servicer.place(context.invocation_metadata()):
                    request = decoded_message(kind, await waits.only(context))
                    return await reply(request, context)
            except Unserved as error:
                await abort(context, error.status)

        return handled

    check = decoding(health_pb2.HealthCheckRequest, servicer.Check)
    listing = decoding(health_pb2.HealthListRequest, servicer.List)
    watch = decoding(health_pb2.HealthCheckRequest, servicer.Watch)
    one, all_ = _Health.SerializeToString, health_pb2.HealthListResponse.SerializeToString
    handlers = {
        "Check": grpc.stream_unary_rpc_method_handler(check, response_serializer=one),
        "List": grpc.stream_unary_rpc_method_handler(listing, response_serializer=all_),
        "Watch": grpc.stream_stream_rpc_method_handler(watch, response_serializer=one),
    }
    return grpc.method_handlers_generic_handler(health.SERVICE_NAME, handlers)


class Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]
    """Reflection, which reports messages that cannot be decoded or do not come."""

    async def ServerReflectionInfo(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Answer the questions of a caller."""
        try:
            async for response in super().ServerReflectionInfo(requests, context):
                yield response
        except DecodeError as error:
            await abort(context, undecodable(reflection_pb2.ServerReflectionRequest, error).status)
        except Unserved as error:
            await abort(context, error.status)


def reflection_handlers(servicer: Reflection, waits: MessageWaits) -> Any:
    """Return the handlers of the reflection service."""

    async def handled(_: Any, context: Any) -> AsyncIterator[Any]:
        async for response in servicer.ServerReflectionInfo(waits.timely(context), context):
            yield response

    handler = grpc.stream_stream_rpc_method_handler(
        handled,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(
        reflection.SERVICE_NAME, {"ServerReflectionInfo": handler}
    )
