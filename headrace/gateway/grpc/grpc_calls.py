"""The admission of a gRPC call, its message, and the end of a call that is not served.

Calls are admitted by their metadata: a call that is not admitted occupies no memory for a message,
and no place among the calls that the server takes at a time.

Handlers get messages as bytes: gRPC itself would end a call whose message it cannot decode with
UNKNOWN, and log each with its trace.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from headrace.gateway.front import Front
from headrace.gateway.protocol.statuses import Ending, Status, Unserved


def authorization(metadata: Any) -> str:
    """Return the value of the header ``Authorization`` in the metadata of a call, "" without."""
    return str(dict(metadata or ()).get("authorization", ""))


def sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that gRPC can send, whose values are printable ASCII. It receives others,
    and would end a call with INTERNAL whose trailing metadata had one."""
    return {n: said for n, said in headers.items() if said.isascii() and said.isprintable()}


def decoded_message(kind: Any, raw: bytes) -> Any:
    """Decode a message of a class; raise ``Unserved`` if the bytes hold none."""
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise undecodable(kind, error) from None


def undecodable(kind: Any, error: DecodeError) -> Unserved:
    """Return the error of a call whose message cannot be decoded."""
    return Unserved(Ending.BAD_REQUEST, f"the message is no {kind.DESCRIPTOR.full_name}: {error}")


async def abort(context: Any, status: Status) -> NoReturn:
    """End a call with a status and the time after which its client may retry."""
    trailing = dict(status.headers)
    retry_after_s = status.ending.retry_after_s
    if status.ending is Ending.OVER_CAPACITY and retry_after_s is not None:
        trailing["grpc-retry-pushback-ms"] = str(round(retry_after_s * 1e3))
    code = getattr(grpc.StatusCode, status.ending.grpc)
    await context.abort(code, status.text, tuple(trailing.items()))
    raise AssertionError("abort raises")


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
