"""The TLS handshake of a new connection, which counts as a connection.

asyncio's own server reports neither a connection before its handshake is done nor a failed
handshake.
"""

import asyncio
import ssl
from collections.abc import Callable


class TlsHandshake(asyncio.Protocol):
    """A new connection. Once its handshake is done, the protocol from ``secured`` takes it over;
    ``failed`` is called if it fails or takes more than ``within_s``."""

    def __init__(
        self,
        context: ssl.SSLContext,
        within_s: float,
        secured: Callable[[], asyncio.Protocol],
        failed: Callable[[], None],
    ) -> None:
        self._context = context
        self._within_s = within_s
        self._secured = secured
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._early = b""  # decrypted data that came with the last part of the handshake
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()  # these bytes belong to the handshake
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(transport))

    def data_received(self, data: bytes) -> None:
        """Keep data that comes early."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is lost and cannot be taken over."""
        self._lost = True

    async def _shake_hands(self, plain: asyncio.Transport) -> None:
        secure = None
        try:
            secure = await asyncio.get_running_loop().start_tls(
                plain, self, self._context, server_side=True, ssl_handshake_timeout=self._within_s
            )
        except OSError:  # the client left, is too slow, or speaks no TLS
            pass
        finally:
            if secure is None or self._lost:
                self._failed()
        if secure is not None and not self._lost:
            self._hand_over(secure)

    def _hand_over(self, secure: asyncio.Transport) -> None:
        protocol = self._secured()
        secure.set_protocol(protocol)
        protocol.connection_made(secure)
        if self._early:
            protocol.data_received(self._early)
