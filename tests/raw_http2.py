"""The bytes of HTTP/2 as a client writes them that keeps to no rule of gRPC's."""

import asyncio

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def opening() -> bytes:
    """Return the first bytes of a connection."""
    return PREFACE + frame(SETTINGS, 0, 0)


async def next_frame(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Return the kind, the flags and the payload of the next frame."""
    head = await reader.readexactly(9)
    return head[3], head[4], await reader.readexactly(int.from_bytes(head[:3]))


async def next_ping(reader: asyncio.StreamReader) -> bytes:
    """Read frames up to a ping; return what it holds, which its answer repeats."""
    while True:
        kind, flags, payload = await next_frame(reader)
        if (kind, flags) == (PING, 0):
            return payload


def call_head(method: str, stream: int = 1, **more: bytes) -> bytes:
    """Return the head of a gRPC call, whose message is not sent; ``more`` are its other headers."""
    named = {
        ":method": b"POST", ":scheme": b"http", ":path": method.encode(), ":authority": b"x",
        "content-type": b"application/grpc", "te": b"trailers", **more,
    }  # fmt: skip
    block = b"".join(b"\0" + _text(name.encode()) + _text(said) for name, said in named.items())
    return frame(HEADERS, END_HEADERS, stream, block)


def message(content: bytes = b"", stream: int = 1) -> bytes:
    """Return the only message of a call."""
    return frame(DATA, END_STREAM, stream, b"\0" + len(content).to_bytes(4) + content)


def _text(said: bytes) -> bytes:
    return bytes((len(said),)) + said
