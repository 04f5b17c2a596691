"""The proxy holds data as a cut network would and keeps the clients of a half-open connection."""

import socket
import threading
from collections.abc import Iterator

import pytest

from benchmarks.tcp_proxy import LOOPBACK, TcpProxy
from headrace.broker.local_broker import _different_ports

SILENT_S = 0.1


@pytest.fixture
def echo() -> Iterator[int]:
    """Return the port of an echo server."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(peer,), daemon=True).start()

        def answer(peer: socket.socket) -> None:
            with peer:
                try:
                    while data := peer.recv(100):
                        peer.sendall(data)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@pytest.fixture
def proxy(echo: int) -> Iterator[tuple[TcpProxy, int]]:
    ((port, _),) = _different_ports(1)
    found = TcpProxy((LOOPBACK, port), (LOOPBACK, echo))
    yield found, port
    found.close()


def connected(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=10.0)
    client.sendall(b"one")
    assert client.recv(100) == b"one"
    return client


def is_silent(client: socket.socket) -> bool:
    client.settimeout(SILENT_S)
    try:
        return client.recv(100) == b"never"
    except TimeoutError:
        return True
    finally:
        client.settimeout(10.0)


@pytest.mark.parametrize("direction", ["to_broker", "to_client"])
def test_data_held_by_a_blocked_direction_arrives_after_healing(
    proxy: tuple[TcpProxy, int], direction: str
) -> None:
    through, port = proxy
    with connected(port) as client:
        setattr(through.network, direction, False)
        client.sendall(b"two")
        assert is_silent(client)
        through.network.heal()
        assert client.recv(100) == b"two"


def test_a_new_connection_to_a_cut_network_is_accepted_and_silent(
    proxy: tuple[TcpProxy, int],
) -> None:
    through, port = proxy
    through.network.cut()
    with socket.create_connection(("127.0.0.1", port), timeout=10.0) as client:
        client.sendall(b"one")
        assert is_silent(client)
        through.network.heal()
        assert client.recv(100) == b"one"


def test_half_open_connection_is_dead_without_notice_to_the_client(
    proxy: tuple[TcpProxy, int],
) -> None:
    through, port = proxy
    with connected(port) as client:
        through.break_half_open()
        client.sendall(b"two")
        assert is_silent(client)
        with connected(port):
            pass


def test_a_slow_network_keeps_the_order(proxy: tuple[TcpProxy, int]) -> None:
    through, port = proxy
    through.network.delay_s = 0.02
    with connected(port) as client:
        sent = b"".join(b"%03d" % number for number in range(100))
        for number in range(100):
            client.sendall(b"%03d" % number)
        got = b""
        while len(got) < len(sent):
            got += client.recv(1000)
        assert got == sent
