"""The dashboard over HTTP: the page, its files, the view, and the stream of its changes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from headrace.dashboard.page_access import HEADERS, PageAccess
from headrace.dashboard.viewers import TooManyViewers, Viewers
from headrace.html.page import palette

STATIC = Path(__file__).parent / "static"
KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
KEEP_ALIVE_S = 15.0
LOCKED = (
    "open the address with ?token= that `headrace dashboard` printed; this browser has no valid "
    "cookie of it"
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer:
    """The handlers of the dashboard; every request but the first needs the cookie."""

    def __init__(self, viewers: Viewers, access: PageAccess) -> None:
        self._viewers = viewers
        self._access = access
        self._files = {
            f"/{path.relative_to(STATIC).as_posix()}": path
            for path in sorted(STATIC.rglob("*"))
            if path.suffix in KINDS
        }

    def app(self) -> web.Application:
        """Return the application; it has GET and HEAD only."""
        app = web.Application(middlewares=[self._guarded])
        app.router.add_get("/view.json", self._view)
        app.router.add_get("/events", self._events)
        app.router.add_get("/palette.css", self._palette)
        app.router.add_get("/{path:.*}", self._file)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await self._checked(request, handler)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._access.knows(request.host):
            return web.Response(status=421, text="this dashboard has no such name; see --name\n")
        given = request.query.get("token")
        if request.path == "/" and given is not None:
            return self._let_in(request, given)
        if not self._access.admits(request.cookies.get(_cookie(request), "")):
            return web.Response(status=401, text=f"{LOCKED}\n")
        try:
            return await handler(request)
        except web.HTTPException as error:
            return web.Response(status=error.status, text=f"{error.reason}\n")

    def _let_in(self, request: web.Request, token: str) -> web.Response:
        """Exchange the token for a cookie, so that the browser's address has none."""
        if not self._access.admits(token):
            return web.Response(status=401, text=f"the token is not the right one; {LOCKED}\n")
        response = web.Response(status=303, headers={"Location": "/"})
        response.set_cookie(
            _cookie(request), token, httponly=True, samesite="Strict", path="/",
            secure=request.secure,
        )  # fmt: skip
        return response

    async def _file(self, request: web.Request) -> web.StreamResponse:
        path = self._files.get("/index.html" if request.path == "/" else request.path)
        if path is None:
            raise web.HTTPNotFound
        return web.FileResponse(
            path, headers={"Content-Type": f"{KINDS[path.suffix]}; charset=utf-8"}
        )

    async def _palette(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text=palette(), content_type="text/css")

    async def _view(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._viewers.whole(), content_type="application/json")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        try:
            with self._viewers.joined() as queue:
                await response.prepare(request)
                await _follow(queue, response)
        except TooManyViewers:
            return web.Response(status=503, text="there are too many viewers; close a page\n")
        except ConnectionResetError:
            pass  # the viewer has left
        return response


async def _follow(queue: "asyncio.Queue[bytes | None]", response: web.StreamResponse) -> None:
    """Write a viewer's events until the stream ends, and comments between them to detect a broken
    connection."""
    while True:
        try:
            text = await asyncio.wait_for(queue.get(), KEEP_ALIVE_S)
        except TimeoutError:
            text = b": \n\n"
        if text is None:
            return
        await response.write(text)


def _cookie(request: web.Request) -> str:
    # Cookies are shared among the ports of a host, and there may be several dashboards.
    return f"headrace-{request.url.port}"
