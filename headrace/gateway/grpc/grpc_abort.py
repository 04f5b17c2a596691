"""The end of a gRPC call that is not served."""

from typing import Any, NoReturn

import grpc

from headrace.gateway.protocol.statuses import Ending, Status


async def abort(context: Any, status: Status) -> NoReturn:
    """End a call with a status, and with the time after which its client may come again."""
    trailing = dict(status.headers)
    if status.ending is Ending.OVER_CAPACITY and status.retry_after_s is not None:
        trailing["grpc-retry-pushback-ms"] = str(round(status.retry_after_s * 1e3))
    code = getattr(grpc.StatusCode, status.ending.grpc)
    await context.abort(code, status.text, tuple(trailing.items()))
    raise AssertionError("abort raises")
