"""A schema registry in memory that answers Headrace's requests.

Tests and benchmarks that need no real one use it.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from urllib.parse import urlsplit


class _Registry(BaseHTTPRequestHandler):
    """Ids by text, and texts by id or by the version of a subject."""

    protocol_version = "HTTP/1.1"  # a connection stays open
    wbufsize = -1  # an answer is one packet: the second of two would wait for 40 ms
    texts: list[str]
    subjects: dict[str, list[int]]  # the ids of the versions

    def do_POST(self) -> None:
        """Register: the same text has the same id."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        text = json.loads(body)["schema"]
        if text not in self.texts:
            self.texts.append(text)
        number = self.texts.index(text) + 1
        versions = self.subjects.setdefault(self._path[1], [])
        if number not in versions:
            versions.append(number)
        self._say(200, {"id": number})

    def do_GET(self) -> None:
        """The text of an id; the versions of a subject, or one of them."""
        match self._path:
            case ["schemas", "ids", number] if 1 <= int(number) <= len(self.texts):
                self._say(200, {"schema": self.texts[int(number) - 1], "schemaType": "AVRO"})
            case ["subjects", name, "versions"] if name in self.subjects:
                self._say(200, list(range(1, len(self.subjects[name]) + 1)))
            case ["subjects", name, "versions", version] if name in self.subjects:
                number = self.subjects[name][int(version) - 1]
                found = {"subject": name, "version": int(version), "id": number}
                self._say(200, {**found, "schema": self.texts[number - 1]})
            case _:
                self._say(404, {"error_code": 40403, "message": "not found"})

    @property
    def _path(self) -> list[str]:
        return list(PurePosixPath(urlsplit(self.path).path).parts[1:])

    def _say(self, status: int, body: object) -> None:
        value = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: stderr is for failures."""


@contextmanager
def a_registry() -> Iterator[str]:
    """Serve a registry without schemas; yield its address."""
    handler = type("_OneRegistry", (_Registry,), {"texts": [], "subjects": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
