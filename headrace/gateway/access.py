"""Access to the gateway by bearer tokens."""

import hashlib
from pathlib import Path

from headrace.errors import GatewayError

BEARER = "bearer "


class Tokens:
    """The tokens of a file, one a line; without a file every caller is admitted.

    Only hashes are kept, so that the time of a comparison reveals nothing about a token.
    """

    def __init__(self, tokens: frozenset[bytes] | None) -> None:
        self._hashes = tokens

    def admit(self, authorization: str) -> bool:
        """Return whether the value of the header ``Authorization`` names a known token."""
        if self._hashes is None:
            return True
        scheme, token = authorization[: len(BEARER)].lower(), authorization[len(BEARER) :]
        return scheme == BEARER and _hash(token.strip()) in self._hashes


def tokens_in(path: Path | None) -> Tokens:
    """Return the tokens of a file, without lines that begin with #; raise ``GatewayError``."""
    if path is None:
        return Tokens(None)
    try:
        text = content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GatewayError(
            f"{path} is not UTF-8 (byte {error.start}), so a token in it could not be sent; write "
            "it as UTF-8"
        ) from None
    lines = (line.strip() for line in text.split("\n"))
    found = frozenset(_hash(line) for line in lines if line and not line.startswith("#"))
    if not found:
        raise GatewayError(f"{path} has no token, so no request would be let in; write one a line")
    return Tokens(found)


def _hash(token: str) -> bytes:
    # Bytes of a header that are no UTF-8 are surrogates here, and equal no token's.
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def content(path: Path) -> bytes:
    """Return the bytes of a file; raise ``GatewayError``."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise GatewayError(f"{path} cannot be read ({error.strerror}); correct the path") from error
