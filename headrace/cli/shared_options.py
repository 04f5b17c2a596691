"""Options that commands share (pipeline file, broker, JSON), and their values."""

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.broker.connect import KAFKA_CONFIG

if TYPE_CHECKING:
    from headrace.arrivals.load_phases import Phases
    from headrace.config.pipeline_file import PipelineFile

F = TypeVar("F", bound=Callable[..., Any])

# Options that may be followed by several values, and the pattern of one value.
SEVERAL = {
    "--policy": r"[A-Za-z0-9_][A-Za-z0-9_-]*(:[a-z]+=[A-Za-z0-9_.-]+)*",
    "--seed": r"\d+",
    "--rate": r"\d+(\.\d+)?",
    "--slo": r"\d+(\.\d+)?(us|ms|s)",
    "--devices": r"\d+|[A-Za-z0-9_.:-]+=\d+",
}


class Parsed(click.ParamType):
    """A value that ``read`` makes of its text; the text of a ``ValueError`` is the user's."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # a default
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _duration(text: str) -> float:
    from schemas.durations import duration

    try:
        return duration(text)
    except ValueError as error:
        raise ValueError(str(error).replace("{}", "the duration", 1)) from error


def _phases(text: str) -> "Phases":
    from headrace.arrivals.load_phases import Phases

    return Phases.parsed(text)


DURATION = Parsed("DURATION", _duration)  # seconds, written as in pipeline files: 300ms, 2s
PHASES = Parsed("PHASES", _phases)  # NAME=LENGTH@RATE[-RATE],...


class NumberRange(click.FloatRange):
    """A number within limits. NaN is none, though it is outside of no limit."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is no number", param, ctx)
        return found


def pipeline_argument(function: F) -> F:
    """Add the argument ``FILE``."""
    return click.argument("file", type=click.Path(path_type=Path))(function)


def pipelines_argument(function: F) -> F:
    """Add the argument FILE..., one pipeline file or more, as ``files``."""
    kind = click.Path(path_type=Path)
    return click.argument("files", metavar="FILE...", nargs=-1, required=True, type=kind)(function)


def host_option(function: F) -> F:
    """Add --host, the address that a server listens on."""
    text = "Address to listen on."
    return click.option("--host", default="127.0.0.1", show_default=True, help=text)(function)


def bootstrap_option(function: F) -> F:
    """Add ``--bootstrap`` and ``--kafka-config``."""
    bootstrap = click.option(
        "--bootstrap",
        envvar="HEADRACE_BOOTSTRAP",
        show_envvar=True,
        metavar="HOST:PORT",
        help="Kafka brokers. Default: the local broker.",
    )
    properties = click.option(
        "--kafka-config",
        envvar=KAFKA_CONFIG,
        show_envvar=True,
        type=click.Path(path_type=Path),
        callback=_remember,
        expose_value=False,
        help="File of librdkafka client properties (TLS, passwords); docs/how-to/security.md.",
    )
    return bootstrap(properties(function))


def _remember(_context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    # The option sets the variable: the roles that a command starts inherit it, and the file's
    # secrets stay off their command lines.
    if path is not None:
        os.environ[KAFKA_CONFIG] = str(path.absolute())


def phases_option(function: F) -> F:
    """Add ``--phases``, whose value is ``Phases`` or None."""
    return click.option(
        "--phases",
        type=PHASES,
        help="Load in phases, in queries/s, as in calm=10s@5,rise=10s@5-60,burst=4s@60.",
    )(function)


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON only.")(function)


def one_blas_thread() -> None:
    """Let NumPy, which must not be imported yet, use one thread: on the small matrices of planners
    more of them cost more than they save."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def read_file(path: Path) -> "PipelineFile":
    """Return the pipeline file; raises ``PipelineError``."""
    from headrace.config.pipeline_file import read_pipeline_file

    return read_pipeline_file(path)


def read_deployed(path: Path) -> "PipelineFile":
    """Return the pipeline file with its workers; device types become the mix that fits the budget.

    Raises ``PipelineError``, ``PlanError`` or ``Unfeasible``.
    """
    file = read_file(path)
    if not file.cluster.unplanned:
        return file
    from headrace.planning.device_mix import with_workers

    return with_workers(file)


class RepeatedOptions(click.Command):
    """A command that reads ``--seed 1 2 3`` and ``--seed 1,2,3`` as repeated options.

    Devices by kind (``cpu=4,cuda:0=2``) are one value.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args))


def spread(args: list[str]) -> list[str]:
    """Return the arguments with the option repeated before each of its values.

    The pipeline file is no value: its name has a dot or a slash, or it is the first argument.
    """
    found: list[str] = []
    option, waits = "", False
    for arg in args:
        name, equals, value = arg.partition("=")
        if name in SEVERAL:
            found += [option] if waits else []
            option, waits = name, not equals
            found += _each(name, value) if equals else []
        elif option and all(re.fullmatch(SEVERAL[option], each) for each in arg.split(",")):
            found += _each(option, arg)
            waits = False
        else:
            # An option without a value takes the argument as it is; click reports the error.
            found += [option, arg] if waits else [arg]
            option, waits = "", False
    return [*found, option] if waits else found


def _each(option: str, values: str) -> list[str]:
    each = [values] if "=" in values and option == "--devices" else values.split(",")
    return [part for value in each for part in (option, value)]
