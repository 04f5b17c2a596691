"""A role on a separate host reaches the broker over its link unless the link is down."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from benchmarks.hosts import Host, no_hosts
from benchmarks.tcp_proxy import LOOPBACK, Proxies
from headrace.broker.local_broker import _different_ports

pytestmark = pytest.mark.skipif(bool(no_hosts()), reason=no_hosts())
ASK = """
import socket, sys
try:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=2.0) as client:
        client.settimeout(float(sys.argv[2]))
        print(client.recv(100).decode())
except TimeoutError:
    print("silence")
"""


@pytest.fixture
def host() -> Iterator[Host]:
    with closing(Host(1)) as found:
        yield found


def asked_from(host: Host, port: int, patience_s: float = 10.0) -> str:
    command = [*host.command, sys.executable, "-c", ASK, str(port), str(patience_s)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def broker() -> Iterator[int]:
    """Return the port of a server that greets every connection."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(b"an answer")

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def test_a_link_that_is_down_is_a_partition_until_it_is_up(host: Host, broker: int) -> None:
    ((_, advertised),) = _different_ports(1)
    with closing(Proxies(("role",), ((broker, advertised),), {"role": host})):
        assert asked_from(host, advertised) == "an answer"
        host.cut_off()
        assert asked_from(host, advertised, patience_s=0.2) == "silence"
        host.connect()
        assert asked_from(host, advertised) == "an answer"
