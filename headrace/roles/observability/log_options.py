"""Options of a role's observability: log format, log level, metrics port and address."""

import contextlib
import functools
import logging
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from headrace.errors import UNSUCCESSFUL, exit_code
from headrace.roles.observability.log_format import (
    FORMAT_VARIABLE,
    FORMATS,
    LEVEL_VARIABLE,
    LEVELS,
    configure,
)

F = TypeVar("F", bound=Callable[..., Any])

METRICS_VARIABLE = "HEADRACE_METRICS_PORT"
METRICS_HOST_VARIABLE = "HEADRACE_METRICS_HOST"
LOOPBACK = "127.0.0.1"  # the metrics port has no authentication

log = logging.getLogger("headrace.role")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The option values. ``metrics_port`` 0: any free port; None: no metrics."""

    log_format: str = "human"
    log_level: str = "info"
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK


def metrics_url(host: str, port: int) -> str:
    """Return the address of the metrics that are served on a port."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def role_options(function: F) -> F:
    """Add ``--log-format``, ``--log-level``, ``--metrics-port`` and ``--metrics-host``.

    The role gets their values as ``logs``. Its log is configured before the role starts; in
    JSON an error that ends the role is logged as a line.
    """

    @functools.wraps(function)
    def configured(*args: Any, metrics_port: int | None, **more: Any) -> Any:
        form, level = os.environ[FORMAT_VARIABLE], os.environ[LEVEL_VARIABLE]
        configure(form, level)
        host = os.environ[METRICS_HOST_VARIABLE]
        logs = LogOptions(
            log_format=form, log_level=level, metrics_port=metrics_port, metrics_host=host
        )
        with _end_help_text(logs):
            return function(*args, logs=logs, **more)

    port = metrics_option("Serve Prometheus metrics on this port; 0: any free port.")
    return log_options(port(configured))  # type: ignore[return-value]


def log_options(function: F) -> F:
    """Add ``--log-format`` and ``--log-level``. Their values are set as environment variables, for
    this process and its children."""
    form = _choice(
        "--log-format", FORMATS, "human", FORMAT_VARIABLE, "Format of log lines on stderr."
    )
    level = _choice(
        "--log-level", LEVELS, "info", LEVEL_VARIABLE,
        "Lowest level to log; debug logs every query.",
    )  # fmt: skip
    return form(level(function))


def _choice(
    flag: str, choices: Sequence[str], default: str, variable: str, help_text: str
) -> Callable[[F], F]:
    return click.option(
        flag,
        type=click.Choice(choices),
        default=default,
        show_default=True,
        envvar=variable,
        callback=_inherited(variable),
        expose_value=False,
        help=help_text,
    )


def metrics_option(help_text: str) -> Callable[[F], F]:
    """Return a decorator that adds ``--metrics-port`` and ``--metrics-host``.

    ``help_text`` is the help of the port. ``--metrics-host`` becomes an environment variable.
    """
    port = click.option(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        envvar=METRICS_VARIABLE,
        callback=_inherited(METRICS_VARIABLE),
        metavar="PORT",
        help=help_text,
    )
    host = click.option(
        "--metrics-host",
        default=LOOPBACK,
        show_default=True,
        envvar=METRICS_HOST_VARIABLE,
        callback=_inherited(METRICS_HOST_VARIABLE),
        expose_value=False,
        metavar="ADDRESS",
        help="Address to serve the metrics on; 0.0.0.0: all addresses, open to every client.",
    )
    return lambda function: port(host(function))


def _inherited(variable: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def remember(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
        if value is not None:
            os.environ[variable] = str(value)
        return value

    return remember


@contextlib.contextmanager
def _end_help_text(logs: LogOptions) -> Iterator[None]:
    """Log an error that ends the role as a JSON line if the log is JSON; else reraise it."""
    try:
        yield
    except Exception as error:
        if logs.log_format != "json" or isinstance(error, click.ClickException):
            raise
        expected = exit_code(error)
        fields = {} if expected is not None else {"traceback": traceback.format_exc()}
        text = str(error) or type(error).__name__
        log.error("%s", text, extra={"event": "role.failed", "fields": fields})
        raise click.exceptions.Exit(UNSUCCESSFUL if expected is None else expected) from error
