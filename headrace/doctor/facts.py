"""Collect the facts of ``headrace doctor`` from this machine and the broker."""

import importlib.metadata
import logging
import re
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from headrace.broker import local_broker as broker
from headrace.broker.broker_home import home_at
from headrace.broker.connect import kafka_config
from headrace.broker.jar_lock import ROOTS
from headrace.broker.java import find_java, java_major
from headrace.cluster.run_state import read_state
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.topology import file_roles
from headrace.doctor.findings import (
    BROKER,
    FILE,
    HIDDEN_TOPIC,
    OK,
    WARN,
    WRONG,
    Finding,
    TopicState,
    broker_found,
    clock_found,
    commits_found,
    disk_found,
    election_found,
    extras_found,
    java_found,
    ports_found,
    python_found,
    replication_found,
    rights_found,
    topics_found,
    transactions_found,
)
from headrace.errors import exit_code
from headrace.planning.mix_validation import examined_with_mix
from headrace.processes import run_directory
from headrace.roles.compiled import compiled
from headrace.roles.observability.log_options import LOOPBACK
from schemas.effects import QUERIES
from schemas.pipeline import Pipeline
from streams.kafka.admin.acl_rights import ROLES, rights
from streams.kafka.admin.topic_admin import brokers_up, topic_descriptions
from streams.kafka.kafka_client import asked, producer, reach
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import FORBIDDEN, BrokerError
from streams.topics import physical, topics

ANSWERS_WITHIN_S = 5.0
PROBES = 5  # records; the fastest round trip bounds the clock skew best
CLOCK_WITHIN_S = 10.0
MILLISECOND = 1e-3  # the resolution of a broker's time stamp


def findings(path: Path | None, bootstrap: str | None) -> Iterator[Finding]:
    """Yield the findings one by one."""
    config = kafka_config(bootstrap)
    yield from _machine(config)
    file, finding = _file(path)
    if finding is not None:
        yield finding
    if file is not None and file.cluster.metrics_port:
        yield _ports(file)
    running = broker.status()
    if not config.bootstrap:
        if running is None:
            yield Finding(
                BROKER, WRONG, "no broker is configured, and the local broker is not running",
                "start it with `headrace broker start`, or pass --bootstrap",
            )  # fmt: skip
            return
        config = KafkaConfig(running.bootstrap, config.properties)
    is_local = running is not None and running.bootstrap == config.bootstrap
    try:
        yield _broker(config, ROOTS[0].split(":")[2] if is_local else "")
        yield _clock(config, file.pipeline.slo_s if file else None)
        if file is not None:
            yield from _pipeline(config, file.pipeline, path)
    except BrokerError as error:
        yield Finding(BROKER, WRONG, str(error))


# ---------------------------------------------------------------------- this machine


def _machine(config: KafkaConfig) -> Iterator[Finding]:
    package = importlib.metadata.metadata("headrace")
    yield python_found(sys.version_info[:3], package["Requires-Python"])
    how = "compiled" if compiled() else "pure Python (`make compiled` speeds up simulations)"
    yield Finding("headrace", OK, f"{package['Version']}, {how}")
    yield from extras_found(importlib.metadata.requires("headrace") or (), _version)
    try:
        java = find_java()
        yield java_found(f"{java}, version {_java_version(java)}", "", is_needed=True)
    except BrokerError as error:
        yield java_found("", str(error), is_needed=not config.bootstrap)
    if not config.bootstrap:
        home = home_at(None).path
        there = next(place for place in (home, *home.parents) if place.exists())
        yield disk_found(str(home), shutil.disk_usage(there).free)


def _java_version(java: Path) -> int | None:
    done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    return java_major(done.stderr + done.stdout)


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _file(path: Path | None) -> tuple[PipelineFile | None, Finding | None]:
    """Return the pipeline file, if one is named and readable, and its finding."""
    if path is None:
        return None, None
    file = None
    try:
        file = read_pipeline_file(path)
        found = examined_with_mix(file)
    except Exception as error:
        if exit_code(error) is None:
            raise
        return file, Finding(FILE, WRONG, str(error))
    if found.infeasible:
        policy, binding = next(iter(found.infeasible.items()))
        return file, Finding(FILE, WARN, f"policy {policy!r} is infeasible: {binding}")
    return file, Finding(FILE, OK, f"{path}: everything it references can be loaded here")


def _ports(file: PipelineFile) -> Finding:
    state = read_state(run_directory(file.pipeline.name))
    ports = {role.name: role.metrics_port or 0 for role in file_roles(file)}
    taken = [role for role, port in ports.items() if not _is_free(port)]
    return ports_found(ports, taken, is_up=state is not None and state.supervisor.alive)


def _is_free(port: int) -> bool:
    try:
        socket.create_server((LOOPBACK, port)).close()
    except (OSError, OverflowError):
        return False
    return True


# ---------------------------------------------------------------------- the broker


def _broker(config: KafkaConfig, local: str) -> Finding:
    reach(config, ANSWERS_WITHIN_S)
    nodes = len(brokers_up(config, ANSWERS_WITHIN_S))
    return broker_found(config.bootstrap, nodes, _produce_version(config), local)


class _Produce(logging.Handler):
    """A log handler that records the highest Produce request version that the broker takes."""

    def __init__(self) -> None:
        super().__init__()
        self.highest: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        match = re.search(r"ApiKey Produce \(0\) Versions \d+\.\.(\d+)", record.getMessage())
        if match:
            self.highest = int(match[1])


def _produce_version(config: KafkaConfig) -> int | None:
    # The client library exposes the broker's API versions in its debug log only. The log goes to
    # this handler alone and is not shown.
    delivered = _Produce()
    log = logging.Logger("headrace.doctor", logging.DEBUG)
    log.addHandler(delivered)
    settings = {**config.client("admin"), "debug": "feature", "log_level": 7}
    client = AdminClient(settings, logger=log)
    until = time.monotonic() + ANSWERS_WITHIN_S
    while delivered.highest is None and time.monotonic() < until:
        client.poll(0.05)
    return delivered.highest


def _clock(config: KafkaConfig, slo_s: float | None) -> Finding:
    """Measure the clock skew with a temporary topic whose time stamps the broker sets."""
    name = f"headrace.doctor-{uuid.uuid4().hex[:12]}"
    settings = {"message.timestamp.type": "LogAppendTime"}
    made = asked(
        config,
        lambda client: client.create_topics([NewTopic(name, 1, config=settings)]),
        ANSWERS_WITHIN_S,
    )[name]
    if isinstance(made, KafkaError):
        return Finding("clock", WARN, f"not measured: cannot create a topic for it ({made.str()})")
    try:
        return clock_found(*_skew(config, name), slo_s)
    except (BrokerError, KafkaException) as error:
        return Finding("clock", WARN, f"not measured: {error}")
    finally:
        asked(config, lambda client: client.delete_topics([name]), ANSWERS_WITHIN_S)


def _skew(config: KafkaConfig, topic: str) -> tuple[float, float]:
    """Return the lead of the broker's clock and its error bound, in seconds."""
    client = producer(config, **{"delivery.timeout.ms": int(CLOCK_WITHIN_S * 1e3)})
    best: tuple[float, float] | None = None
    for _ in range(PROBES):
        delivered: list[Any] = []
        before = time.time()
        client.produce(
            topic, b"tick", on_delivery=lambda e, m, delivered=delivered: delivered.append((e, m))
        )
        while not delivered:
            client.poll(0.1)
        after = time.time()
        error, message = delivered[0]
        if error is not None:
            raise BrokerError(error.str())
        kind, stamp_ms = message.timestamp()
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            raise BrokerError("the broker does not stamp records itself")
        error_s = (after - before + MILLISECOND) / 2
        if best is None or error_s < best[1]:
            best = (stamp_ms / 1e3 + MILLISECOND / 2 - (before + after) / 2, error_s)
    assert best is not None
    return best


# ---------------------------------------------------------------------- the pipeline


def _pipeline(config: KafkaConfig, pipeline: Pipeline, path: Path | None) -> Iterator[Finding]:
    wanted = topics(pipeline)
    there = _there(config, [topic.name for topic in wanted])
    yield from topics_found(wanted, there, str(path))
    nodes = brokers_up(config, ANSWERS_WITHIN_S)
    of_one = _settings(config, dict.fromkeys(nodes[:1], ResourceType.BROKER))
    settings = next(iter(of_one.values()), {})
    yield replication_found(there, len(nodes), settings)
    yield from election_found(settings)
    yield from transactions_found(settings, len(nodes))
    queries = physical(pipeline.name, QUERIES)
    yield from commits_found(queries, there.get(queries, HIDDEN_TOPIC), settings)
    needed = {role: [r for r in rights(pipeline, role) if r.resource == "topic"] for role in ROLES}
    yield rights_found(needed, there, str(path))


def _there(config: KafkaConfig, names: list[str]) -> dict[str, TopicState]:
    answers = topic_descriptions(config, names, ANSWERS_WITHIN_S)
    seen = [name for name in names if not isinstance(answers[name], KafkaError)]
    settings = _settings(config, dict.fromkeys(seen, ResourceType.TOPIC))
    found = {}
    for name in names:
        topic = answers[name]
        if not isinstance(topic, KafkaError):
            operations = topic.authorized_operations
            allowed = frozenset(each.name for each in operations) if operations else None
            copies = min((len(p.replicas) for p in topic.partitions), default=1)
            own = settings.get(name, {})
            found[name] = TopicState(len(topic.partitions), own, allowed, copies)
        elif topic.code() in FORBIDDEN:
            found[name] = HIDDEN_TOPIC
    return found


def _settings(config: KafkaConfig, kinds: Mapping[str, ResourceType]) -> dict[str, dict[str, str]]:
    """Return the settings of the topics and brokers, by name, that this user may describe."""
    if not kinds:
        return {}
    resources = [ConfigResource(kind, name) for name, kind in kinds.items()]
    answers = asked(config, lambda client: client.describe_configs(resources), ANSWERS_WITHIN_S)
    return {
        resource.name: {key: entry.value for key, entry in entries.items()}
        for resource, entries in answers.items()
        if not isinstance(entries, KafkaError)
    }
