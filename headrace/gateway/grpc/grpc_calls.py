"""The message of a gRPC call, and the end of a call that is not served.

Handlers get messages as bytes: gRPC itself would end a call whose message it cannot decode with
UNKNOWN, and log each with its trace.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

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
