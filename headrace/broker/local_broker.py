"""A local Apache Kafka: one KRaft node on loopback, found or started by its home directory.

One home directory, by default one per user, holds all of its files. The broker starts detached,
so that it outlives the terminal of `headrace broker start`; `borrow` stops it after a block.
"""

import base64
import json
import secrets
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fcntl import LOCK_EX, flock
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.atomic_file import write_whole
from headrace.broker.broker_home import (
    Home,
    Identity,
    format_command,
    home_at,
    log4j_properties,
    serve_command,
    server_properties,
)
from headrace.broker.broker_process import death_of, end, format_if_new, is_ours, spawn
from headrace.broker.jars import Progress, classpath
from headrace.broker.java import check_java, find_java
from streams.kafka.kafka_errors import BrokerError

__all__ = ["BrokerError", "Progress", "Running", "borrow", "ensure", "start", "status", "stop"]

START_PATIENCE = 60.0  # seconds; 2.6 on an idle machine, 20 with every core busy

# Below the ephemeral port range of Linux and macOS, so that a reserved port stays free while the
# broker is down.
_PORTS = range(20_000, 32_000)
USUAL_PORT = 9092  # Kafka's default port; the per-user home uses it if it is free


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running local broker."""

    bootstrap: str  # host:port for clients
    port: int
    pid: int
    home: Path
    log: Path
    started_here: bool  # whether the call that returned this started the broker


def start(
    home: Path | None = None, *, java: Path | None = None, progress: Progress | None = None
) -> Running:
    """Find the broker of this home, or start it, and return once it answers.

    The home is ``home``, else HEADRACE_HOME, else the per-user data directory. Its ports are
    chosen at the first start and kept. `progress` is called for each jar that the first start on
    a machine downloads. Concurrent calls from several processes start one broker.
    Raises BrokerError: no Java of 17 or newer, jars not available, a kept port in use by another
    process, the broker ended during start-up or did not answer for a minute.
    """
    place = home_at(home)
    with _locked(place):
        found = _found(place)
        if found is not None:
            return _answering(place, found)
        return _started(place, java, progress)


def ensure(home: Path | None = None) -> Running:
    """Return the broker of this home, started if it does not run.

    Raises BrokerError as `start` does.
    """
    return start(home)


@contextmanager
def borrow(home: Path | None = None, *, java: Path | None = None) -> Iterator[Running]:
    """Yield the broker of this home; stop it after the block only if this call started it."""
    running = start(home, java=java)
    try:
        yield running
    finally:
        if running.started_here:
            stop(home)


def status(home: Path | None = None) -> Running | None:
    """Return the broker of this home; None if its process does not run."""
    return _found(home_at(home))


def stop(home: Path | None = None) -> bool:
    """Stop the broker of this home: SIGTERM, then SIGKILL after 20 s. Return False if none ran."""
    place = home_at(home)
    if not place.path.exists():
        return False
    with _locked(place):
        found = _found(place)
        if found is not None:
            end(found.pid)
        place.state.unlink(missing_ok=True)
    return found is not None


def _started(place: Home, java: Path | None, progress: Progress | None) -> Running:
    runtime = find_java() if java is None else check_java(java)
    jars = classpath(progress)
    identity = _reachable_identity(place)
    for port in (identity.port, identity.controller_port):
        _require_free(place, port)
    place.server_properties.write_text(server_properties(place, identity))
    place.log4j_properties.write_text(log4j_properties(place))
    format_if_new(place, format_command(runtime, jars, place, identity))
    pid = spawn(place, serve_command(runtime, jars, place))
    try:
        # Written before the broker answers, so that it can be found if this process is killed.
        write_whole(
            place.state,
            json.dumps({"pid": pid, "port": identity.port, "bootstrap": identity.bootstrap}) + "\n",
        )
        return _answering(place, _running(place, identity, pid, started_here=True))
    except BaseException:
        end(pid)
        place.state.unlink(missing_ok=True)
        raise


def _running(place: Home, identity: Identity, pid: int, *, started_here: bool) -> Running:
    return Running(
        bootstrap=identity.bootstrap,
        port=identity.port,
        pid=pid,
        home=place.path,
        log=place.log,
        started_here=started_here,
    )


def _found(place: Home) -> Running | None:
    try:
        pid = json.loads(place.state.read_text())["pid"]
        identity = Identity(**json.loads(place.identity.read_text()))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    if not is_ours(pid, place):
        return None
    return _running(place, identity, pid, started_here=False)


def _identity(place: Home) -> Identity:
    if place.identity.exists():
        return Identity(**json.loads(place.identity.read_text()))
    port, controller_port = _free_ports()
    if place.is_default and _is_free(USUAL_PORT):
        port = USUAL_PORT
    # The format tool would parse a leading "-" as an option.
    cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
    identity = Identity(cluster=cluster, port=port, controller_port=controller_port)
    write_whole(place.identity, json.dumps(asdict(identity)) + "\n")
    return identity


def _reachable_identity(place: Home) -> Identity:
    """Return the identity; with a new port if another program has taken the usual one."""
    identity = _identity(place)
    if identity.port != USUAL_PORT or _is_free(USUAL_PORT):
        return identity
    moved = replace(identity, port=_free_ports()[0])
    write_whole(place.identity, json.dumps(asdict(moved)) + "\n")
    return moved


def _free_ports() -> tuple[int, int]:
    while True:
        port = secrets.choice(_PORTS)
        if _is_free(port) and _is_free(port + 1):
            return port, port + 1


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka itself does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _require_free(place: Home, port: int) -> None:
    if not _is_free(port):
        raise BrokerError(
            f"the local broker keeps port {port} on 127.0.0.1, but another process listens there; "
            f"stop that process, or delete {place.identity} and {place.data} to begin anew "
            "with other ports and no data"
        )


def _answering(place: Home, running: Running) -> Running:
    """Wait until the broker answers a metadata request."""
    quiet = {"log_level": 0, "reconnect.backoff.max.ms": 200, "socket.timeout.ms": 2000}
    client = AdminClient({"bootstrap.servers": running.bootstrap, **quiet})
    give_up = time.monotonic() + START_PATIENCE
    while time.monotonic() < give_up:
        try:
            client.list_topics(timeout=1.0)
        except KafkaException:
            if not is_ours(running.pid, place):
                raise death_of(place) from None
        else:
            return running
    raise BrokerError(
        f"the local broker (process {running.pid}) did not answer on {running.bootstrap} within "
        f"{START_PATIENCE:.0f} s; see {place.log}"
    )


@contextmanager
def _locked(place: Home) -> Iterator[None]:
    try:
        place.path.mkdir(parents=True, exist_ok=True)
        file = place.lock.open("w")
    except OSError as error:
        raise BrokerError(
            f"the local broker's home {place.path} cannot be written ({error.strerror}); "
            "set HEADRACE_HOME to a directory of your own"
        ) from error
    with file:
        flock(file, LOCK_EX)
        yield
