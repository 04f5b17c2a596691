"""The gateway's gRPC port."""

import errno
from typing import Any

import grpc

from headrace.gateway.access import Tls, grpc_credentials
from headrace.gateway.listeners import Limits, taken


def grpc_server(limits: Limits, *, share: bool) -> Any:
    """Return a ``grpc.aio`` server without services."""
    return grpc.aio.server(
        maximum_concurrent_rpcs=limits.requests,
        options=(
            ("grpc.max_receive_message_length", limits.body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", limits.requests),
            ("grpc.so_reuseport", int(share)),
            ("grpc.max_connection_idle_ms", round(limits.idle_s * 1e3)),
        ),
    )


async def start_grpc(server: Any, host: str, port: int, tls: Tls | None) -> int:
    """Listen and serve; return the port. Raises ``PortTaken``."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound = server.add_insecure_port(place) if tls is None else _secure(server, place, tls)
    except RuntimeError as error:
        raise taken("gRPC", host, port, error) from error
    if not bound:
        raise taken("gRPC", host, port, OSError(errno.EADDRINUSE, "address in use"))
    await server.start()
    return int(bound)


def _secure(server: Any, place: str, tls: Tls) -> Any:
    key, chain, clients = grpc_credentials(tls)
    credentials = grpc.ssl_server_credentials(
        ((key, chain),), root_certificates=clients, require_client_auth=clients is not None
    )
    return server.add_secure_port(place, credentials)
