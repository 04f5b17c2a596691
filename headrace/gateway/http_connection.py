"""One HTTP connection: errors below the handlers are told in JSON."""

from aiohttp import web

from headrace.gateway.http_responses import json_response


class HttpConnection(web.RequestHandler):
    """aiohttp's connection, for ``HttpListener``."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a head that is no HTTP, or whose handler failed.

        Only the second is logged: anybody can send the first, as fast as the network goes.
        """
        if status >= web.HTTPInternalServerError.status_code:
            super().handle_error(request, status, exc, message)
            text = f"{status}: the gateway failed; its log says why"
        else:
            text = f"{status}: the head of the request is no HTTP: {_line(message)}"
        response = json_response({"error": text}, status)
        response.force_close()
        return response


def _line(message: str | None) -> str:
    return " ".join((message or "").split())[:200]
