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
from functools import partial
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
from headrace.broker.broker_process import death_of, end_all, format_if_new, is_ours, spawn
from headrace.broker.jars import Progress
from headrace.broker.java_runtime import JavaRuntime, java_runtime
from headrace.broker.start_patience import QUIET_S, StartPatience
from streams.kafka.kafka_errors import BrokerError

__all__ = ["BrokerError", "Progress", "Running", "borrow", "start", "status", "stop"]

# Below the ephemeral port range of Linux and macOS, so that a reserved port stays free while the
# broker is down.
_PORTS = range(20_000, 32_000)
USUAL_PORT = 9092  # Kafka's default port; the per-user home uses it if it is free


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running local broker; ``pid``, ``port`` and ``log`` are those of its first living node."""

    bootstrap: str  # host:port for clients, of several nodes separated by commas
    port: int
    pid: int
    home: Path
    log: Path
    started_here: bool  # whether the call that returned this started the broker
    nodes: tuple[int | None, ...] = ()  # the process of every node; None: it does not run
    proxied: tuple[tuple[int, int], ...] = ()  # ports of proxied listeners: own, advertised


def start(
    home: Path | None = None,
    *,
    java: Path | None = None,
    progress: Progress | None = None,
    nodes: int | None = None,
    proxied: int = 0,
) -> Running:
    """Find the broker of this home, or start it, and return once it answers.

    The home is ``home``, else HEADRACE_HOME, else the per-user data directory. Its ports are
    chosen at the first start and kept. `progress` is called for each jar that the first start on
    a machine downloads. Concurrent calls from several processes start one broker. ``nodes`` is
    chosen at the first start too (1 by default); nodes of it that have died are started again.
    ``proxied``, chosen at the first start: the number of further listeners that advertise the port
    of a proxy (``Running.proxied``).
    Raises BrokerError: no Java of 17 or newer, jars not available, a kept port in use by another
    process, another number of nodes, the broker ended during start-up, or logged nothing new for
    a minute and did not answer.
    """
    place = home_at(home)
    with _locked(place):
        found = _found(place)
        if found is not None and None not in found.nodes:
            _check_nodes(place, len(found.nodes), nodes)
            return _answering(place, found)
        return _started(place, java, progress, nodes, proxied)


@contextmanager
def borrow(home: Path | None = None, *, nodes: int | None = None) -> Iterator[Running]:
    """Yield the broker of this home; stop it after the block only if this call started it."""
    running = start(home, nodes=nodes)
    try:
        yield running
    finally:
        if running.started_here:
            stop(home)


def status(home: Path | None = None) -> Running | None:
    """Return the broker of this home; None if no process of it runs."""
    return _found(home_at(home))


def stop(home: Path | None = None) -> bool:
    """Stop the broker of this home: SIGTERM, then SIGKILL after 20 s. Return False if none ran."""
    place = home_at(home)
    if not place.path.exists():
        return False
    with _locked(place):
        found = _found(place)
        if found is not None:
            # All at once: the last of three nodes has no quorum and cannot leave cleanly.
            end_all([pid for pid in found.nodes if pid is not None])
        for state in (place.state, *place.path.glob("node-*/running.json")):
            state.unlink(missing_ok=True)
    return found is not None


def _started(
    place: Home, java: Path | None, progress: Progress | None, nodes: int | None, proxied: int
) -> Running:
    runtime = java_runtime(java, progress)
    identity = _reachable_identity(place, nodes, proxied)
    # The pids of spawned nodes are kept: right after its start a process has no command line yet.
    living = list(_living(place, identity))
    begun: list[int] = []
    try:
        for number, pid in enumerate(living, 1):
            if pid is None:
                begun.append(_spawned(place, identity, number, runtime))
                living[number - 1] = begun[-1]
        return _answering(place, _running(place, identity, tuple(living), started_here=True))
    except BaseException:
        end_all(begun)
        raise


def _spawned(place: Home, identity: Identity, number: int, java: JavaRuntime) -> int:
    """Start one node; its state is written before it answers, so that it can be found if this
    process is killed."""
    node = place.node(number)
    node.path.mkdir(parents=True, exist_ok=True)
    for port in identity.nodes[number - 1]:
        _require_free(place, port)
    node.server_properties.write_text(server_properties(place, identity, number))
    node.log4j_properties.write_text(log4j_properties(node))
    with java.recorded():
        format_if_new(node, format_command(java, node, identity))
    pid = spawn(node, serve_command(java, node, len(identity.nodes)))
    port = identity.nodes[number - 1][0]
    state = {"pid": pid, "port": port, "bootstrap": identity.bootstrap}
    write_whole(node.state, json.dumps(state) + "\n")
    return pid


def _running(
    place: Home, identity: Identity, living: tuple[int | None, ...], *, started_here: bool
) -> Running:
    first = next((i for i, pid in enumerate(living) if pid is not None), 0)
    return Running(
        bootstrap=identity.bootstrap,
        port=identity.nodes[first][0],
        pid=living[first] or 0,
        home=place.path,
        log=place.node(first + 1).log,
        started_here=started_here,
        nodes=living,
        proxied=identity.proxied,
    )


def _living(place: Home, identity: Identity) -> tuple[int | None, ...]:
    """Return the process of every node, None for one that does not run."""
    return tuple(_process_of(place.node(n)) for n in range(1, len(identity.nodes) + 1))


def _process_of(node: Home) -> int | None:
    try:
        pid: int = json.loads(node.state.read_text())["pid"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return pid if is_ours(pid, node) else None


def _found(place: Home) -> Running | None:
    try:
        identity = _read_identity(place)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    running = _running(place, identity, _living(place, identity), started_here=False)
    return running if running.pid else None


def _read_identity(place: Home) -> Identity:
    row = json.loads(place.identity.read_text())
    pairs = {name: tuple(map(tuple, row.get(name, ()))) for name in ("others", "proxied")}
    return Identity(**{**row, **pairs})


def _check_nodes(place: Home, found: int, wanted: int | None) -> None:
    if wanted is not None and wanted != found:
        raise BrokerError(
            f"the local broker at {place.path} has {found} node{'s' * (found != 1)}, not {wanted}; "
            f"stop it and delete {place.path} to begin anew without its data, or set HEADRACE_HOME "
            "to another directory"
        )


def _identity(place: Home, nodes: int | None, proxied: int) -> Identity:
    if place.identity.exists():
        identity = _read_identity(place)
        _check_nodes(place, len(identity.nodes), nodes)
        return identity
    (port, controller_port), *more = _different_ports((nodes or 1) + proxied)
    others = more[: (nodes or 1) - 1]
    if place.is_default and _is_free(USUAL_PORT):
        port = USUAL_PORT
    # The format tool would parse a leading "-" as an option.
    cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
    identity = Identity(
        cluster=cluster, port=port, controller_port=controller_port, others=tuple(others),
        proxied=tuple(more[len(others) :]),
    )  # fmt: skip
    write_whole(place.identity, json.dumps(asdict(identity)) + "\n")
    return identity


def _reachable_identity(place: Home, nodes: int | None, proxied: int) -> Identity:
    """Return the identity; with a new port if another program has taken the usual one."""
    identity = _identity(place, nodes, proxied)
    if identity.port != USUAL_PORT or _process_of(place) or _is_free(USUAL_PORT):
        return identity
    moved = replace(identity, port=_free_ports()[0])
    write_whole(place.identity, json.dumps(asdict(moved)) + "\n")
    return moved


def _different_ports(count: int) -> list[tuple[int, int]]:
    """Return pairs of free ports."""
    found: dict[int, tuple[int, int]] = {}
    while len(found) < count:
        pair = _free_ports()
        if not {port for each in found.values() for port in each} & set(pair):
            found[pair[0]] = pair
    return list(found.values())


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
    """Wait until the broker answers a metadata request and knows all of its nodes."""
    quiet = {"log_level": 0, "reconnect.backoff.max.ms": 200, "socket.timeout.ms": 2000}
    client = AdminClient({"bootstrap.servers": running.bootstrap, **quiet})
    began = time.monotonic()
    patience = StartPatience(began, QUIET_S, partial(_logged, place, len(running.nodes)))
    while not patience.over(time.monotonic()):
        try:
            known = len(client.list_topics(timeout=1.0).brokers)
        except KafkaException:
            known = 0
        if known >= len(running.nodes):
            return running
        for number, pid in enumerate(running.nodes, 1):
            if not is_ours(pid or 0, place.node(number)):
                raise death_of(place.node(number)) from None
        time.sleep(0.05 if known else 0.0)
    raise BrokerError(
        f"the local broker (process {running.pid}) did not answer on {running.bootstrap} within "
        f"{time.monotonic() - began:.0f} s; see {place.log}"
    )


def _logged(place: Home, nodes: int) -> list[int]:
    """Return when each node's log was last written, in ns; 0 without one."""
    logs = [place.node(number).log for number in range(1, nodes + 1)]
    return [_written_ns(log) for log in logs]


def _written_ns(log: Path) -> int:
    try:
        return log.stat().st_mtime_ns
    except FileNotFoundError:  # not yet, or being rotated
        return 0


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
