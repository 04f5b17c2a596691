"""Damaged connections over HTTP: request lines, headers, lengths and chunks that are none, requests
that end in the middle, and several requests in one piece.

A connection is right if it ends by itself and every response on it is whole, has a client-error
status or 200, and reports errors in JSON.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks.gateway_fuzz.damage import Outcome, Target, cut_and_put, one_of, outcomes

ALLOWED = frozenset((100, 200, 400, 404, 405, 408, 411, 413, 414, 417, 431, 501, 505))
LEFT = "left"  # the client, in the middle
LEAVING = 0.05  # of the clients
ENDING = 0.9  # of the connections: the others end by the gateway's time limits
MOST_PARTS = 4  # that a connection's bytes are sent in

LINES = (
    b"", b"GET", b"GET /v2", b"GET  /v2  HTTP/1.1", b"get /v2 HTTP/1.1", b"GET /v2 HTTP/9.9",
    b"GET /v2 HTTP/1.0", b"GET /v2 http/1.1", b"GET v2 HTTP/1.1", b"GET * HTTP/1.1",
    b"GET http://[/v2 HTTP/1.1", b"GET http://elsewhere/v2 HTTP/1.1", b"CONNECT x:1 HTTP/1.1",
    b"OPTIONS * HTTP/1.1", b"PRI * HTTP/2.0", b"G\0T /v2 HTTP/1.1", b"GET /%zz%00 HTTP/1.1",
    b"GET /v2/models/../../etc/passwd HTTP/1.1", b"GET /v2/models/%2e%2e/ready HTTP/1.1",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    b"DELETE /v2 HTTP/1.1", b"GET /v2\xff\xfe HTTP/1.1", b"GET /v2?wait=nan&since=-1 HTTP/1.1",
)  # fmt: skip
HEADERS = (
    b"no colon", b": no name", b"Name : space", b" folded: x", b"Two:\r\n lines", b"Nul: \0",
    b"Bytes: \xff\xfe", b"Na\xe9me: x", b"Long: " + b"a" * 100_000, b"L" * 20_000 + b": x",
    b"\r\n".join(b"N%d: x" % n for n in range(500)), b"Host: y", b"Connection: upgrade",
    b"Upgrade: websocket", b"Upgrade: h2c", b"Expect: 100-continue", b"Expect: nothing",
    b"Content-Encoding: gzip", b"Content-Encoding: nothing", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: identity", b"Content-Length: 3",
    b"Content-Length: 0", b"Accept-Encoding: br;q=x", b"Content-Type: multipart/form-data",
)  # fmt: skip
LENGTHS = (
    b"-1", b"+5", b"1e3", b"0x10", b"99999999999999999999", b"5, 5", b"", b"5 5", b"\xef\xbc\x95",
    b"0", b"1", b"1000", b"4000000", b"00000005", b"5.0",
)  # fmt: skip
CHUNKS = (
    b"zz\r\nhello\r\n", b"-1\r\nhello\r\n", b"FFFFFFFFFFFFFFFFFF\r\nhello\r\n", b"5\r\nhello",
    b"5\r\nhel\r\n", b"5\r\nhello world\r\n", b"5;" + b"x" * 20_000 + b"\r\nhello\r\n",
    b"5;a=b\r\nhello\r\n", b"\r\nhello\r\n", b"5\nhello\n", b" 5\r\nhello\r\n", b"5\r\nhello\r\n",
    b"0x5\r\nhello\r\n", b"30d40\r\n" + b"a" * 200_000 + b"\r\n",
)  # fmt: skip
LASTS = (b"0\r\n\r\n", b"0\r\n\r\n", b"", b"0\r\nTrailer: x\r\n\r\n", b"0\r\nno colon\r\n\r\n")

Damage = Callable[[np.random.Generator, str], bytes]


def damaged(rng: np.random.Generator, model: str) -> bytes:
    """Return the bytes of a client on a connection: up to two whole requests, a damaged one, and
    mostly one that asks for the connection's end, which a damaged one may swallow."""
    whole = [_whole(rng, model) for _ in range(rng.integers(0, 3))]
    end = _request(b"GET /v2/health/live HTTP/1.1", b"Connection: close")
    return b"".join((*whole, one_of(rng, DAMAGES)(rng, model), end * (rng.random() < ENDING)))


def _whole(rng: np.random.Generator, model: str) -> bytes:
    path = f"/v2/models/{model}".encode()
    chunked = b"5\r\nhello\r\n0\r\n\r\n"
    return one_of(rng, (
        _request(b"GET /v2/health/live HTTP/1.1"),
        _request(b"GET " + path + b" HTTP/1.1"),
        _posted(path, b"Content-Length: 5", b"hello"),
        _posted(path, b"Transfer-Encoding: chunked", chunked),
        _posted(path, b"Expect: 100-continue\r\nContent-Length: 5", b"hello"),
    ))  # fmt: skip


def _request(line: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join((line, b"Host: x", *headers, b"", b"")) + body


def _posted(path: bytes, framing: bytes, body: bytes) -> bytes:
    raw = b"Inference-Header-Content-Length: 0"
    return _request(b"POST " + path + b"/infer HTTP/1.1", raw, framing, body=body)


def _odd_line(rng: np.random.Generator, _: str) -> bytes:
    return _request(one_of(rng, LINES))


def _odd_headers(rng: np.random.Generator, model: str) -> bytes:
    odd = [one_of(rng, HEADERS) for _ in range(rng.integers(1, 4))]
    framing = b"\r\n".join((*odd, b"Content-Length: 5"))
    return _posted(f"/v2/models/{model}".encode(), framing, b"hello")


def _odd_length(rng: np.random.Generator, model: str) -> bytes:
    framing = b"Content-Length: " + one_of(rng, LENGTHS)
    return _posted(f"/v2/models/{model}".encode(), framing, b"hello")


def _odd_chunks(rng: np.random.Generator, model: str) -> bytes:
    body = b"".join(one_of(rng, CHUNKS) for _ in range(rng.integers(1, 4))) + one_of(rng, LASTS)
    return _posted(f"/v2/models/{model}".encode(), b"Transfer-Encoding: chunked", body)


def _half(rng: np.random.Generator, model: str) -> bytes:
    whole = _whole(rng, model)
    return whole[: rng.integers(len(whole))]


def _changed(rng: np.random.Generator, model: str) -> bytes:
    return cut_and_put(rng, _whole(rng, model))


def _noise(rng: np.random.Generator, _: str) -> bytes:
    return rng.bytes(int(rng.integers(1, 500)))


DAMAGES: tuple[Damage, ...] = (
    _odd_line, _odd_headers, _odd_length, _odd_chunks, _half, _changed, _noise,
)  # fmt: skip


# ---------------------------------------------------------------------- sent and read


async def send_heads(
    target: Target, seed: int, numbers: Iterator[int], at_once: int
) -> tuple[Counter[str], int]:
    """Send the connections; return their number by statuses in turn ("": closed without one), and
    how many are wrong."""
    host, _, port = target.http.rpartition(":")

    async def send(number: int) -> Outcome:
        rng = np.random.default_rng([seed, number, 1])
        text, leaves = damaged(rng, target.model), rng.random() < LEAVING
        cuts = sorted(rng.integers(0, len(text) + 1, rng.integers(0, MOST_PARTS)).tolist())
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            return await _talk(reader, writer, _parts(text, cuts), leaves=leaves)
        finally:
            writer.transport.abort()

    return await outcomes("head", numbers, at_once, send)


def _parts(text: bytes, cuts: Sequence[int]) -> list[bytes]:
    return [text[a:b] for a, b in zip((0, *cuts), (*cuts, len(text)), strict=True)]


async def _talk(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, parts: Sequence[bytes], *,
    leaves: bool,
) -> Outcome:  # fmt: skip
    said = b""
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if leaves:
            return Outcome(LEFT, right=True)
        while more := await reader.read(2**16):
            said += more
    except ConnectionError:  # closed while there was more to read
        pass
    try:
        statuses = statuses_in(said)
    except ValueError as error:
        return Outcome(f"garbled: {error}", right=False)
    return Outcome(" ".join(map(str, statuses)), set(statuses) <= ALLOWED)


def statuses_in(said: bytes) -> list[int]:
    """Return the statuses of the responses on a connection.

    Raises ``ValueError`` for an incomplete response, and for an error response whose JSON body has
    no sentence.
    """
    found = []
    while said:
        head, end, said = said.partition(b"\r\n\r\n")
        if not end:
            raise ValueError("half a head")
        status = int(head.split(b" ", 2)[1])
        found.append(status)
        if status == 100:
            continue
        length = int(head.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
        body, said = said[:length], said[length:]
        if len(body) < length:
            raise ValueError("half a body")
        if status != 200 and not json.loads(body)["error"]:
            raise ValueError("an error without a sentence")
    return found
