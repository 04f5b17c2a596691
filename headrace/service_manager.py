"""Tell a service manager such as systemd that this process works (sd_notify(3)).

The protocol is one datagram. The libraries for it need libsystemd or have no releases any more.
"""

import contextlib
import socket
from collections.abc import Callable, Mapping

NOTIFY_SOCKET = "NOTIFY_SOCKET"  # environment: the address, set for units of type notify
WORKS = b"READY=1\nWATCHDOG=1"  # ready, which counts once, and a sign of life


def service_manager(env: Mapping[str, str]) -> Callable[[], None]:
    """Return a function that reports that this process works; it does nothing without a manager.

    An unreachable manager is not an error.
    """
    name = env.get(NOTIFY_SOCKET, "")
    if not name:
        return lambda: None
    address = f"\0{name[1:]}" if name.startswith("@") else name

    def works() -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(WORKS, address)

    return works
