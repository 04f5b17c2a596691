"""Certificates that are renewed while a gateway runs."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest

from headrace.gateway import certificates
from headrace.gateway.certificates import Certificates, Tls
from tests.gateway_world import BrokerInTest, M, a_gateway, call
from tests.integration.certificates import make_authority


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    """Return a certificate by the authority old.pem."""
    pem = make_authority(tmp_path / "old.pem").server(tmp_path / "server.pem")
    return Tls(certificate=pem, key=pem)


def renew(tls: Tls) -> None:
    """Replace the files, as a secret's, by a certificate of the authority new.pem."""
    folder = tls.certificate.parent
    make_authority(folder / "new.pem").server(folder / "renewed").replace(tls.certificate)


async def over_http(port: int, authority: Path) -> bool:
    """Return whether a client that trusts this authority is served."""
    trusted = ssl.create_default_context(cafile=authority)
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
    except ssl.SSLCertVerificationError:
        return False
    writer.close()
    return True


async def over_grpc(port: int, authority: Path) -> bool:
    """Return whether a client that trusts this authority is served."""
    trusted = grpc.ssl_channel_credentials(authority.read_bytes())
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", trusted) as channel:
        try:
            await call(channel, "ServerLive", M.ServerLiveRequest())
        except grpc.aio.AioRpcError:
            return False
        return True


@pytest.mark.parametrize("over", [over_http, over_grpc])
async def test_new_connections_get_a_renewed_certificate(
    over: Callable[[int, Path], Awaitable[bool]], tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway served the certificate of its start until it ended, and beyond its expiry."""
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.01)
    old, new = (tls.certificate.parent / name for name in ("old.pem", "new.pem"))

    async with asyncio.timeout(20.0), a_gateway(BrokerInTest(), tls=tls) as gateway:
        port = gateway.http if over is over_http else gateway.grpc
        assert await over(port, old)
        renew(tls)
        while not await over(port, new):
            pass
        assert not await over(port, old)


def test_files_that_do_not_fit_leave_the_former_certificate_in_use(
    tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    served = Certificates(tls)
    context, pem = served.context, served.pem
    tls.certificate.write_text("half a file")
    served.look()
    served.look()
    tls.certificate.unlink()
    served.look()
    assert (served.context, served.pem) == (context, pem)
    renew(tls)
    served.look()
    served.look()
    assert served.context is not context
    assert served.pem.certificate == tls.certificate.read_bytes()
    assert [(r.event, r.levelname) for r in caplog.records] == [  # type: ignore[attr-defined]
        ("tls.unusable", "WARNING"), ("tls.unusable", "WARNING"), ("tls.renewed", "INFO"),
    ]  # fmt: skip
    assert "server.pem cannot be read" in caplog.messages[1]
