"""Bodies in the content codings of HTTP. Pure.

aiohttp decompresses too, but takes what has arrived of a gzip body that is cut short for all of it.
"""

import zlib

from headrace.gateway.protocol.statuses import Ending, Unserved

_GZIP, _DEFLATE, _BARE = 31, 15, -15  # zlib's names of formats; bare: without zlib's header
_WINDOWS = {"gzip": _GZIP, "deflate": _DEFLATE}
_ZLIB = 8  # the lower half of the first byte of zlib's header
MOST_MEMBERS = 64  # of a gzip body, which may be several files one after the other


def unpacked(body: bytes, coding: str, most: int) -> bytes:
    """Return a body without its ``Content-Encoding``, at most ``most`` bytes.

    Raises ``Unserved`` for another coding than gzip, deflate and identity, for a larger body, and
    for one that is not complete or not in its coding.
    """
    name = coding.strip().lower()
    if name == "identity" or not body:
        return body
    if name not in _WINDOWS:
        raise _unreadable(f"its Content-Encoding is {coding[:40]!r}; send gzip, deflate or none")
    bare = name == "deflate" and body[0] & 0xF != _ZLIB
    try:
        return _inflated(body, _BARE if bare else _WINDOWS[name], most)
    except zlib.error as error:
        raise _unreadable(f"it is no {name}: {error}") from None


def _inflated(body: bytes, window: int, most: int) -> bytes:
    parts: list[bytes] = []
    size, rest = 0, body
    while rest:
        if len(parts) >= (MOST_MEMBERS if window == _GZIP else 1):
            raise _unreadable(f"{len(rest)} bytes follow its end")
        member = zlib.decompressobj(window)
        parts.append(member.decompress(rest, most - size + 1))
        size += len(parts[-1])
        if size > most:
            raise Unserved(
                Ending.TOO_LARGE, f"the body has over {most} bytes, decompressed; send less"
            )
        if not member.eof:
            raise _unreadable("its compressed data is cut short")
        rest = member.unused_data
    return b"".join(parts)


def _unreadable(why: str) -> Unserved:
    return Unserved(Ending.BAD_REQUEST, f"the body cannot be read: {why}")
