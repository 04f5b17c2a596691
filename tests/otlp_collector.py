"""A collector that stores what it receives by OTLP over HTTP, in JSON."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class Collector(HTTPServer):
    """``taken`` has the path, content type and body of each request; ``status``, ``more_headers``
    and ``body`` define the response."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._scheme = "http" if context is None else "https"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.taken: list[tuple[str, str, Any]] = []
        self.status = 200
        self.more_headers: dict[str, str] = {}
        self.body = b"{}"

    @property
    def endpoint(self) -> str:
        """Return the collector's address."""
        return f"{self._scheme}://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[dict[str, Any]]:
        """Return every received span."""
        return [
            span
            for _, _, body in self.taken
            for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(self.server.status)
        for name, value in self.server.more_headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.body)

    def do_GET(self) -> None:
        """Serve a page, as a proxy that asks users to log in."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def a_collector(context: ssl.SSLContext | None = None) -> Iterator[Collector]:
    """Run a collector during the block, over HTTPS with a ``context``."""
    with Collector(context) as collector:
        serving = threading.Thread(target=collector.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            serving.join()
