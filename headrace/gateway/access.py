"""Access to the gateway: bearer tokens, and certificates."""

import hashlib
import ssl
from dataclasses import dataclass
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
        text = _read(path).decode("utf-8-sig")
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


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise GatewayError(f"{path} cannot be read ({error.strerror}); correct the path") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The files of a server's certificate and key (PEM), and of the authority whose clients are
    admitted (None: clients need no certificate)."""

    certificate: Path
    key: Path
    clients: Path | None = None


def ssl_context(tls: Tls) -> ssl.SSLContext:
    """Return the context for HTTPS; raise ``GatewayError`` for files that do not fit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (tls.certificate, tls.key, *((tls.clients,) if tls.clients else ())):
        _read(path)

    def no_password() -> str:  # without it, OpenSSL would ask on the terminal
        raise GatewayError(f"the key in {tls.key} is encrypted; write it without a password")

    try:
        context.load_cert_chain(tls.certificate, tls.key, no_password)
    except ssl.SSLError as error:
        raise GatewayError(
            f"{tls.certificate} and {tls.key} are no certificate and its key in PEM: {error.reason}"
        ) from error
    if tls.clients is not None:
        _admit_clients(context, tls.clients)
    return context


def _admit_clients(context: ssl.SSLContext, clients: Path) -> None:
    try:
        context.load_verify_locations(clients)
    except ssl.SSLError as error:
        raise GatewayError(
            f"{clients} has no certificate of an authority in PEM: {error.reason}"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED


def grpc_credentials(tls: Tls) -> tuple[bytes, bytes, bytes | None]:
    """Return the key, the certificate chain and the clients' authority in gRPC's form."""
    clients = _read(tls.clients) if tls.clients else None
    return _read(tls.key), _read(tls.certificate), clients
