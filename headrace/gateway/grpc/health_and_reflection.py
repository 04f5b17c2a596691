"""gRPC's own services: health, which ends its streams when the gateway shuts down, and reflection
for callers with a token."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from headrace.gateway.front import Front
from headrace.gateway.grpc.grpc_calls import abort, decoded, undecodable
from headrace.gateway.protocol.statuses import Unserved

SERVICES = (health.SERVICE_NAME, reflection.SERVICE_NAME)
DESCRIPTORS = (health_pb2.DESCRIPTOR.serialized_pb, reflection_pb2.DESCRIPTOR.serialized_pb)
_Health = health_pb2.HealthCheckResponse


class GatewayHealth(health.aio.HealthServicer):  # type: ignore[misc]
    """The health of the gateway, of its service and of its models."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._front = front

    async def Watch(self, request: Any, context: Any) -> None:
        """Send each state of a service until the gateway shuts down."""
        await self._front.unless_draining(super().Watch(request, context))
        await context.write(_Health(status=_Health.NOT_SERVING))

    async def tell(self, service: str, why: str) -> None:
        """Set the state of a service; ``why`` is the reason that it cannot serve, or ""."""
        await self.set(service, _Health.NOT_SERVING if why else _Health.SERVING)


def health_handlers(servicer: GatewayHealth) -> Any:
    """Return the handlers of the health service, for messages that are not decoded yet."""

    def decoding(kind: Any, reply: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        async def handled(raw: bytes, context: Any) -> Any:
            try:
                request = decoded(kind, raw)
            except Unserved as error:
                await abort(context, error.status)
            return await reply(request, context)

        return handled

    check = decoding(health_pb2.HealthCheckRequest, servicer.Check)
    listing = decoding(health_pb2.HealthListRequest, servicer.List)
    watch = decoding(health_pb2.HealthCheckRequest, servicer.Watch)
    one, all_ = _Health.SerializeToString, health_pb2.HealthListResponse.SerializeToString
    handlers = {
        "Check": grpc.unary_unary_rpc_method_handler(check, response_serializer=one),
        "List": grpc.unary_unary_rpc_method_handler(listing, response_serializer=all_),
        "Watch": grpc.unary_stream_rpc_method_handler(watch, response_serializer=one),
    }
    return grpc.method_handlers_generic_handler(health.SERVICE_NAME, handlers)


class GuardedReflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]
    """Reflection for callers that the gateway admits."""

    def __init__(self, front: Front, services: Sequence[str], pool: Any) -> None:
        super().__init__(services, pool)
        self._front = front

    async def ServerReflectionInfo(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Answer the questions of a caller with a token."""
        try:
            self._front.check(dict(context.invocation_metadata()).get("authorization", ""))
            async for response in super().ServerReflectionInfo(requests, context):
                yield response
        except DecodeError as error:
            await abort(context, undecodable(reflection_pb2.ServerReflectionRequest, error).status)
        except Unserved as error:
            await abort(context, error.status)
