"""Calls are admitted by their metadata: a call that is not admitted occupies no memory for a
message, and no place among the calls that the server takes at a time."""

from typing import Any

import grpc

from headrace.gateway.front import Front
from headrace.gateway.grpc.grpc_calls import abort, authorization
from headrace.gateway.protocol.statuses import Unserved


def guarded(front: Front, handlers: Any) -> Any:
    """Return a service for callers with a token; the same service if every caller is admitted."""
    return handlers if front.tokens.admit("") else _Guarded(front, handlers)


class _Guarded(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A service for callers with a token. Others are refused before their message has come: gRPC
    limits neither how long a message takes to arrive nor the memory for those that do."""

    def __init__(self, front: Front, handlers: Any) -> None:
        self._front = front
        self._handlers = handlers

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call, None if the service has no such method."""
        handler = self._handlers.service(handler_call_details)
        try:
            self._front.check(authorization(handler_call_details.invocation_metadata))
        except Unserved as error:
            return handler and _refusal(error)
        return handler


def _refusal(error: Unserved) -> Any:
    async def refuse(_: Any, context: Any) -> None:
        await abort(context, error.status)

    return grpc.stream_unary_rpc_method_handler(refuse)  # it waits for no message
