"""One HTTP connection: it limits how long its client reads nothing, and sends errors as JSON."""

import asyncio
from collections.abc import Callable

from aiohttp import ClientConnectionResetError, web

from headrace.gateway.http.http_responses import json_response, refused


class HttpConnection(web.RequestHandler):
    """aiohttp's connection, cut off if its client reads none of the written data for
    ``read_within_s``; ``closed`` is called once it is closed."""

    __slots__ = ("_closed", "_read_within_s", "_unread", "_unread_bytes")

    def __init__(
        self, server: web.Server, *, read_within_s: float, idle_s: float, closed: Callable[[], None]
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]
            keepalive_timeout=idle_s,
            auto_decompress=False,  # headrace/gateway/protocol/content_codings.py
        )
        self._read_within_s = read_within_s
        self._closed = closed
        self._unread: asyncio.TimerHandle | None = None
        self._unread_bytes = 0  # when the timer was set

    def pause_writing(self) -> None:
        """Start the client's time to read."""
        super().pause_writing()
        self._start_time()

    def resume_writing(self) -> None:
        """Stop that time."""
        super().resume_writing()
        self._stop_time()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Report that the connection is closed."""
        super().connection_lost(exc)
        self._stop_time()
        self._closed()

    def _start_time(self) -> None:
        if self.transport is not None:
            self._unread_bytes = self.transport.get_write_buffer_size()
            self._unread = self._loop.call_later(self._read_within_s, self._cut_off)

    def _stop_time(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _cut_off(self) -> None:
        if self.transport is None:
            return
        if self.transport.get_write_buffer_size() < self._unread_bytes:
            self._start_time()  # it reads slowly
        else:
            self.transport.abort()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response; an error raised before the handlers, such as an unknown ``Expect``, as
        JSON."""
        told = refused(resp) if isinstance(resp, web.HTTPException) else resp
        return await super().finish_response(request, told, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a malformed head or a failed handler.

        Only a failed handler is logged, and only if the client is still there: any client can send
        malformed heads, or leave before aiohttp has told it to continue, as fast as the network
        allows. A header whose bytes no response can repeat, such as an unknown ``Expect``, counts
        as malformed.
        """
        if isinstance(exc, UnicodeEncodeError):
            status, message = web.HTTPBadRequest.status_code, "it has bytes that are no UTF-8"
        if status >= web.HTTPInternalServerError.status_code:
            if not isinstance(exc, ClientConnectionResetError):
                super().handle_error(request, status, exc, message)
            text = f"{status}: the gateway failed; its log says why"
        else:
            text = f"{status}: the head of the request is no HTTP: {_line(message)}"
        response = json_response({"error": text}, status)
        response.force_close()
        return response


def _line(message: str | None) -> str:
    return " ".join((message or "").split())[:200]
