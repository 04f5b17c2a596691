"""What several commands take: the pipeline file, the broker, JSON; and what they come to."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.broker.connect import KAFKA_CONFIG, kafka_config
from headrace.terminal import Advance, progress, waiting

if TYPE_CHECKING:
    from headrace.broker.local_broker import Running
    from headrace.config.pipeline_file import PipelineFile
    from streams.kafka.kafka_client import KafkaConfig

F = TypeVar("F", bound=Callable[..., Any])

WRITE_RELEASE = "HEADRACE_WRITE_RELEASE"  # environment: a number under schemas/avro/released
ANSWERS_WITHIN_S = 4.0  # a person waits for a broker no longer


class DurationType(click.ParamType):
    """Seconds, written as in pipeline files: 300ms, 2s."""

    name = "DURATION"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from schemas.durations import duration

        if isinstance(value, float):
            return value
        try:
            return duration(value)
        except ValueError as error:
            self.fail(str(error).replace("{}", "the duration", 1), param)


def pipeline_argument(function: F) -> F:
    """``FILE``."""
    return click.argument("file", type=click.Path(path_type=Path))(function)


def bootstrap_option(function: F) -> F:
    """``--bootstrap`` and ``--kafka-config``."""
    bootstrap = click.option(
        "--bootstrap",
        envvar="HEADRACE_BOOTSTRAP",
        show_envvar=True,
        metavar="HOST:PORT",
        help="Kafka brokers. Without it the local broker is found or started.",
    )
    properties = click.option(
        "--kafka-config",
        envvar=KAFKA_CONFIG,
        show_envvar=True,
        type=click.Path(path_type=Path),
        callback=_remember,
        expose_value=False,
        help="Client properties (librdkafka's names): TLS, passwords; docs/how-to/security.md.",
    )
    return bootstrap(properties(function))


def _remember(_context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    # The option is a way to set the variable: the roles that a command starts inherit it, and
    # what stands in the file stays off their command lines.
    if path is not None:
        os.environ[KAFKA_CONFIG] = str(path.absolute())


def json_option(function: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON only.")(function)


def read_file(path: Path) -> "PipelineFile":
    """The pipeline file; raises ``PipelineError``."""
    from headrace.config.pipeline_file import read_pipeline_file

    return read_pipeline_file(path)


def read_deployed(path: Path) -> "PipelineFile":
    """The pipeline file with workers to run: of types, those of the mix that its budget affords;
    raises ``PipelineError``, ``PlanError`` or ``Unfeasible``."""
    file = read_file(path)
    if not file.cluster.unplanned:
        return file
    from headrace.planning.device_mix import deployed

    return deployed(file)


def reached(bootstrap: str | None) -> "KafkaConfig":
    """Brokers that answer; raises ``BrokerError`` within seconds."""
    from streams.kafka.kafka_client import reach

    kafka = brokers(bootstrap)
    reach(kafka, ANSWERS_WITHIN_S)
    return kafka


def brokers(bootstrap: str | None) -> "KafkaConfig":
    """The brokers that the options name, else the local one; raises ``KafkaConfigError``."""
    _write_as(os.environ.get(WRITE_RELEASE, ""))
    named = kafka_config(bootstrap)
    return named if named.bootstrap else replace(named, bootstrap=local_broker().bootstrap)


def _write_as(release: str) -> None:
    """In a rolling upgrade: write what processes of an earlier release can read."""
    from schemas.codec.single_object import write_as

    try:
        write_as(int(release) if release else None)
    except ValueError as error:
        raise click.UsageError(
            f"{WRITE_RELEASE} must be the number of a release, and is {release!r}: {error}"
        ) from error


def local_broker() -> "Running":
    """The local broker, started if it does not run, with a word on what takes long."""
    from headrace.broker import local_broker as broker

    found = broker.status()
    if found is not None:
        return found
    with contextlib.ExitStack() as stack:
        stack.enter_context(waiting("starting the local broker"))
        return broker.start(progress=_jar_progress(stack))


def _jar_progress(stack: contextlib.ExitStack) -> Callable[[str, int, int], None]:
    advance: Advance | None = None

    def told(jar: str, number: int, total: int) -> None:
        nonlocal advance
        if advance is None:
            stack.close()  # one moving line at a time
            advance = stack.enter_context(progress("downloading Apache Kafka", total))
        advance(number, jar)

    return told
