"""The gateway's certificates, which it reads again when their files change.

Kubernetes replaces the files of a secret when cert-manager renews a certificate. New connections
then get the new one; those that exist keep theirs.
"""

import asyncio
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headrace.errors import GatewayError
from headrace.gateway.access import content
from streams.observers.journal import tell

log = logging.getLogger("headrace.gateway")

LOOK_EVERY_S = 5.0
LEVELS = {"tls.renewed": logging.INFO, "tls.unusable": logging.WARNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The files of a server's certificate and key (PEM), and of the authority whose clients are
    admitted (None: clients need no certificate)."""

    certificate: Path
    key: Path
    clients: Path | None = None


class _Contents(NamedTuple):
    """The bytes of the files of ``Tls``."""

    certificate: bytes
    key: bytes
    clients: bytes | None


def _contents(tls: Tls) -> _Contents:
    clients = content(tls.clients) if tls.clients else None
    return _Contents(content(tls.certificate), content(tls.key), clients)


def ssl_context(tls: Tls) -> ssl.SSLContext:
    """Return the context for HTTPS; raise ``GatewayError`` for files that do not fit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _contents(tls)  # whose error names the file that cannot be read

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


class Certificates:
    """The certificates of both ports. ``context`` is the one for HTTPS, ``pem`` has the same in
    gRPC's form. Raises ``GatewayError`` for files that do not fit."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self.pem = _contents(tls)
        self.context = ssl_context(tls)
        self._why = ""  # the files do not fit now

    def look(self) -> None:
        """Read the files again if they have changed; keep what was read if they do not fit."""
        try:
            found = _contents(self._tls)
            if found == self.pem:
                self._why = ""
                return
            context = ssl_context(self._tls)
            if found == _contents(self._tls):  # else they are being replaced: look again later
                self.context, self.pem, self._why = context, found, ""
                self._say("tls.renewed", f"new connections get the certificate in {self.name}")
        except (GatewayError, OSError) as error:  # OSError: a file vanished after it was read
            if str(error) != self._why:
                self._why = str(error)
                self._say("tls.unusable", f"the former certificate stays in use: {error}")

    @property
    def name(self) -> str:
        """The certificate's file."""
        return str(self._tls.certificate)

    async def follow(self) -> None:
        """Look every ``LOOK_EVERY_S``, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await asyncio.to_thread(self.look)

    def _say(self, event: str, text: str) -> None:
        tell(log, LEVELS[event], event, text, certificate=self.name)
