"""The limit on open files, which every connection of the gateway counts against."""

import resource

from headrace.errors import GatewayError

SPARE = 512  # for Kafka's clients, gRPC's connections, the log, and those beyond the limit


def open_file_limit(connections: int, soft: int, hard: int) -> int:
    """Return the soft limit on open files that this number of HTTP connections needs.

    It is ``soft`` where that suffices, and at most ``hard``: the limits that
    ``resource.getrlimit`` returns.

    Raises ``GatewayError`` if ``hard`` is too low.
    """
    wanted = connections + SPARE
    if wanted > hard != resource.RLIM_INFINITY:
        raise GatewayError(
            f"--most-connections {connections} needs {wanted} open files, but this process may "
            f"have {hard}; lower it to {max(hard - SPARE, 1)}, or raise the hard limit (ulimit -Hn)"
        )
    return soft if soft == resource.RLIM_INFINITY else max(soft, wanted)


def raise_open_files(connections: int) -> None:
    """Raise this process's soft limit to what the connections need; raise ``GatewayError``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_file_limit(connections, soft, hard), hard))
