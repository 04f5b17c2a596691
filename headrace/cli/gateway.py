"""The gateway: pipelines behind the Open Inference Protocol."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.broker.connect import brokers
from headrace.cli.shared_options import (
    DURATION,
    bootstrap_option,
    host_option,
    pipelines_argument,
    read_file,
)
from headrace.roles.observability.log_options import LogOptions, role_options

if TYPE_CHECKING:
    from headrace.gateway.certificates import Tls
    from headrace.gateway.http.listeners import Limits

F = TypeVar("F", bound=Callable[..., Any])
NONE = "none"
SHORTEST_S = 1e-3  # of a limit on time: gRPC counts milliseconds, and 0 is no limit over HTTP


class _PortOrNone(click.ParamType):
    """A port, or ``none``."""

    name = "PORT|none"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        return None if value in (None, NONE) else click.IntRange(0, 65535)(value, param, ctx)


def _file(name: str, help_text: str) -> Callable[[F], F]:
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(name, type=kind, metavar="FILE", help=help_text)


def _limit(name: str, field: str, default: int | str, help_text: str) -> Callable[[F], F]:
    """Return the option of a field of ``Limits``: a count, or a duration such as 30s."""
    kind = click.IntRange(1) if isinstance(default, int) else DURATION
    return click.option(name, field, type=kind, default=default, show_default=True, help=help_text)


@click.command()
@pipelines_argument
@bootstrap_option
@host_option
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="HTTP port; 0: any free port.",
)
@click.option(
    "--grpc-port",
    type=_PortOrNone(),
    default="8001",
    show_default=True,
    help="gRPC port; 0: any free port.",
)
@click.option("--share-ports", is_flag=True, help="Let other gateways listen on the same ports.")
@_file("--tokens", "Accepted bearer tokens, one per line. Default: no authentication.")
@_file("--tls-certificate", "PEM certificate chain; needs --tls-key.")
@_file("--tls-key", "PEM key of --tls-certificate.")
@_file("--tls-clients", "PEM authority that must have signed the clients' certificates.")
@_limit(
    "--most-bytes",
    "body_bytes",
    8 * 1024 * 1024,
    "Largest request body after decompression, in bytes.",
)
@_limit(
    "--most-bytes-held",
    "held_bytes",
    1024**3,
    "Most bytes of bodies in flight; further requests get 429.",
)
@_limit(
    "--most-connections",
    "connections",
    1000,
    "Most HTTP connections, and at most 1000 over gRPC; further ones get 503 (TLS, gRPC: are "
    "closed).",
)
@_limit(
    "--most-requests",
    "requests",
    10_000,
    "Most requests in flight per pipeline; further ones get 429.",
)
@_limit("--idle", "idle_s", "30s", "Close a connection after this time without a complete request.")
@_limit(
    "--body",
    "body_s",
    "30s",
    "Longest time for a body to arrive (then 408) or for a client to read.",
)
@_limit("--drain", "drain_s", "8s", "Longest wait for requests in flight after SIGTERM.")
@role_options
def gateway(
    files: tuple[Path, ...],
    bootstrap: str | None,
    host: str,
    http_port: int,
    grpc_port: int | None,
    share_ports: bool,
    tokens: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    tls_clients: Path | None,
    logs: LogOptions,
    **limits: Any,
) -> None:
    """Serve pipelines over HTTP and gRPC (Open Inference Protocol v2).

    tritonclient, KServe's client and curl see each pipeline as a model. Any number of gateways can
    serve the same pipelines, without coordination.

    \b
    Example:
      headrace gateway pipeline.yaml --http-port 8000 --grpc-port 8001
      curl localhost:8000/v2/models/NAME/infer -H 'Inference-Header-Content-Length: 0' \\
        --data-binary @input.png
    """
    from headrace.gateway.gateway_role import GatewayOptions, run_gateway
    from headrace.processes import follow_supervisor

    options = GatewayOptions(
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        tokens=tokens,
        tls=_tls(tls_certificate, tls_key, tls_clients),
        limits=_limits(**limits),
        share_ports=share_ports,
    )
    read = [read_file(file) for file in files]
    follow_supervisor()
    run_gateway(read, brokers(bootstrap), options, logs)


def _limits(**limits: Any) -> "Limits":
    from headrace.gateway.http.listeners import Limits

    found = Limits(**limits)
    if found.held_bytes < found.body_bytes:
        raise click.UsageError(
            f"--most-bytes-held ({found.held_bytes}) is below --most-bytes ({found.body_bytes}); "
            "raise it"
        )
    for option, seconds in (("--idle", found.idle_s), ("--body", found.body_s)):
        if seconds < SHORTEST_S:
            raise click.UsageError(
                f"{option} is {seconds:g} s, in which no request could arrive; write 1ms or more"
            )
    return found


def _tls(certificate: Path | None, key: Path | None, clients: Path | None) -> "Tls | None":
    if certificate is None and key is None and clients is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("TLS needs both --tls-certificate and --tls-key")
    from headrace.gateway.certificates import Tls

    return Tls(certificate=certificate, key=key, clients=clients)
