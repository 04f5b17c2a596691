"""Connect to the brokers named by an option, the environment or a client properties file, else
to the local broker."""

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.terminal import Advance, progress, waiting
from streams.kafka.kafka_config import KafkaConfig, KafkaConfigError, parse_properties

if TYPE_CHECKING:
    from headrace.broker.local_broker import Running

KAFKA_CONFIG = "HEADRACE_KAFKA_CONFIG"  # environment: a client properties file
BOOTSTRAP = "bootstrap.servers"
WRITE_RELEASE = "HEADRACE_WRITE_RELEASE"  # environment: a number under schemas/avro/released
WARM_UP_S = 0.5  # of a local broker that has just started
ANSWERS_WITHIN_S = 4.0  # the longest wait of an interactive command


def kafka_config(bootstrap: str | None, env: Mapping[str, str] = os.environ) -> KafkaConfig:
    """Return the named brokers with the properties of the file in ``HEADRACE_KAFKA_CONFIG``.

    ``bootstrap`` overrides the file's ``bootstrap.servers``; the result's is "" if neither names
    brokers. Raises ``KafkaConfigError``.
    """
    path = env.get(KAFKA_CONFIG)
    properties = read_kafka_properties(Path(path), env) if path else {}
    own = properties.pop(BOOTSTRAP, "")
    return KafkaConfig(bootstrap or own, properties)


def read_kafka_properties(path: Path, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the properties of a file, references resolved. Raises ``KafkaConfigError``."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise KafkaConfigError(
            f"the Kafka properties file {path} cannot be read ({why}); "
            f"name another with --kafka-config or {KAFKA_CONFIG}"
        ) from None
    return parse_properties(
        text, str(path), env, lambda named: Path(named).read_text(encoding="utf-8")
    )


def reached(bootstrap: str | None) -> "KafkaConfig":
    """Return brokers that answer; raises ``BrokerError`` after ``ANSWERS_WITHIN_S``."""
    from streams.kafka.kafka_client import reach

    kafka = brokers(bootstrap)
    reach(kafka, ANSWERS_WITHIN_S)
    return kafka


def reached_running(bootstrap: str | None) -> "KafkaConfig":
    """Return brokers that answer, without starting the local one: for commands that only read.

    Raises ``BrokerError``, also where neither an option nor a running local broker names any.
    """
    from headrace.broker import local_broker as broker
    from streams.kafka.kafka_errors import BrokerError

    if not kafka_config(bootstrap).bootstrap and broker.status() is None:
        raise BrokerError(
            "no broker is named and the local one does not run; name one with --bootstrap, "
            "or start it with `headrace broker start` or a pipeline with `headrace up FILE`"
        )
    return reached(bootstrap)


def brokers(bootstrap: str | None) -> "KafkaConfig":
    """Return the brokers that the options name, else the local one; raises ``KafkaConfigError``."""
    _write_as(os.environ.get(WRITE_RELEASE, ""))
    named = kafka_config(bootstrap)
    return named if named.bootstrap else replace(named, bootstrap=local_broker().bootstrap)


def _write_as(release: str) -> None:
    """Write records in the format of an earlier release."""
    from schemas.codec.single_object import write_as

    try:
        write_as(int(release) if release else None)
    except ValueError as error:
        raise click.UsageError(
            f"{WRITE_RELEASE} must be the number of a release, and is {release!r}: {error}"
        ) from error


def release_limit() -> int | None:
    """Return the newest schema release that this process may write, None for no limit."""
    return int(os.environ.get(WRITE_RELEASE, "") or 0) or None


def local_broker(nodes: int | None = None) -> "Running":
    """Return the local broker, started and warmed up if it does not run; shows progress.

    ``nodes``: the number of nodes; dead nodes are started.
    """
    from headrace.broker import local_broker as broker
    from headrace.broker.broker_warm_up import warm_up_broker
    from streams.kafka.kafka_errors import BrokerError

    found = broker.status()
    if found is not None and nodes is None:
        return found
    with contextlib.ExitStack() as stack:
        stack.enter_context(waiting("starting the local broker"))
        started = broker.start(progress=_jar_progress(stack), nodes=nodes)
        if started.started_here:
            # Else the first query would wait for the warm-up. The next request reports a broker
            # that fails.
            try:
                with contextlib.suppress(BrokerError):
                    warm_up_broker(KafkaConfig(started.bootstrap), WARM_UP_S)
            except (
                BaseException
            ):  # a signal: the caller does not learn that it has a broker to stop
                broker.stop()
                raise
        return started


def _jar_progress(stack: contextlib.ExitStack) -> Callable[[str, int, int], None]:
    advance: Advance | None = None

    def report(jar: str, number: int, total: int) -> None:
        nonlocal advance
        if advance is None:
            stack.close()  # one progress display at a time
            advance = stack.enter_context(progress("downloading Apache Kafka", total))
        advance(number, jar)

    return report
