"""Datagrams that tell a service manager that a process works."""

import socket
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.processes import ALIVE
from headrace.roles.observability.observability import sign_of_life
from headrace.service_manager import NOTIFY_SOCKET, WORKS, service_manager


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    # Not in ``tmp_path``, which may be too long for the address of a socket.
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound,
    ):
        bound.bind(f"{folder}/notify")
        bound.settimeout(5.0)
        yield bound


def received(bound: socket.socket) -> list[bytes]:
    bound.setblocking(False)
    found = []
    while True:
        try:
            found.append(bound.recv(100))
        except BlockingIOError:
            return found


def test_a_sign_of_life_says_that_the_process_is_ready_and_works(manager: socket.socket) -> None:
    works = service_manager({NOTIFY_SOCKET: manager.getsockname()})
    works()
    works()
    assert received(manager) == [WORKS, WORKS]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has addresses outside of folders")
def test_the_address_may_lie_outside_of_folders() -> None:
    name = f"headrace-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"\0{name}")
        service_manager({NOTIFY_SOCKET: f"@{name}"})()
        assert received(bound) == [WORKS]


def test_a_process_works_on_without_its_manager(tmp_path: Path) -> None:
    service_manager({})()
    service_manager({NOTIFY_SOCKET: str(tmp_path / "none")})()


def test_a_manager_that_reads_nothing_holds_nobody_up(manager: socket.socket) -> None:
    works = service_manager({NOTIFY_SOCKET: manager.getsockname()})
    for _ in range(10_000):
        works()
    assert received(manager)


def test_a_role_tells_its_supervisor_or_else_the_service_manager(
    manager: socket.socket, tmp_path: Path
) -> None:
    sign_of_life({NOTIFY_SOCKET: manager.getsockname()})()
    assert received(manager) == [WORKS]
    touched = tmp_path / "alive"
    sign_of_life({NOTIFY_SOCKET: manager.getsockname(), ALIVE: str(touched)})()
    assert touched.exists()
    assert received(manager) == []
