"""A gRPC client that does only what HTTP/2 requires, to measure calls without a client library.

One call at a time over one connection; the request is encoded once and sent unchanged.
"""

import socket
import struct
from types import TracebackType

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
POST, HTTP = b"\x83", b"\x86"  # in HPACK's static table
WINDOW = 2**31 - 1 - 65_535  # beyond the one that a connection begins with


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    """Return an HTTP/2 frame."""
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def header(name: bytes, value: bytes) -> bytes:
    """Return a header in HPACK's literal form, without indexing; 126 bytes a text at most."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


class RawCalls:
    """Calls of one method with one message; ``call`` returns the message of the response."""

    def __init__(self, host: str, port: int, method: str, message: bytes) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        window = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW))
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + window)
        self._head = b"".join((
            POST, HTTP, header(b":path", method.encode()), header(b":authority", b"x"),
            header(b"content-type", b"application/grpc"), header(b"te", b"trailers"),
        ))  # fmt: skip
        self._body = b"\0" + struct.pack(">I", len(message)) + message
        self._stream = 1
        self._unread = b""

    def __enter__(self) -> "RawCalls":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._socket.close()

    def call(self) -> bytes:
        """Make the call; raise ``ConnectionError`` if there is no message in the response."""
        stream, self._stream = self._stream, self._stream + 2
        request = frame(HEADERS, END_HEADERS, stream, self._head)
        self._socket.sendall(request + frame(DATA, END_STREAM, stream, self._body))
        said = b""
        while True:
            kind, flags, of, body = self._frame()
            if kind == GOAWAY or (kind == RST_STREAM and of == stream):
                raise ConnectionError(f"the call was ended: {body!r}")
            if kind == DATA:
                said += body
            if kind in (DATA, HEADERS) and of == stream and flags & END_STREAM:
                break
        if not said:
            raise ConnectionError("the response has no message")
        return said[5:]

    def _frame(self) -> tuple[int, int, int, bytes]:
        """Return the next frame, after handling the frames of the connection itself."""
        head = self._read(9)
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        body = self._read(int.from_bytes(head[:3], "big"))
        if kind in (SETTINGS, PING) and not flags & ACK:
            self._socket.sendall(frame(kind, ACK, 0, body if kind == PING else b""))
        return kind, flags, stream, body

    def _read(self, count: int) -> bytes:
        while len(self._unread) < count:
            more = self._socket.recv(65_536)
            if not more:
                raise ConnectionError("the connection was closed")
            self._unread += more
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken
