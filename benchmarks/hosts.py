"""Hosts of their own on one machine: network namespaces, each with a link to the broker's.

A role on a host reaches the broker over the link only. A link that is down is a partition as cables
and switches make it: packets are lost, and TCP sends them again at growing intervals.
"""

import ctypes
import os
import shutil
import subprocess

CLONE_NEWNET = 0x40000000
NAMESPACES = "/run/netns"


def no_hosts() -> str:
    """Return the reason that no host can be made, or ""."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and iproute2's ip"
    return ""


class Host:
    """A network namespace with a link; ``number`` is its own among those of this process."""

    def __init__(self, number: int) -> None:
        self.namespace = f"headrace-{os.getpid()}-{number}"
        self._link = f"hr{os.getpid() % 100_000}n{number}"
        network = f"10.{20 + os.getpid() % 200}.{number}"
        self.gateway = f"{network}.1"  # the broker's end of the link
        other = f"{self._link}x"
        _ip("netns", "add", self.namespace)
        _ip("link", "add", self._link, "type", "veth", "peer", other, "netns", self.namespace)
        _ip("addr", "add", f"{self.gateway}/30", "dev", self._link)
        _ip("-n", self.namespace, "addr", "add", f"{network}.2/30", "dev", other)
        _ip("-n", self.namespace, "link", "set", other, "up")
        _ip("-n", self.namespace, "link", "set", "lo", "up")
        self.connect()

    @property
    def command(self) -> list[str]:
        """The prefix of a command that runs on the host."""
        return ["ip", "netns", "exec", self.namespace]

    def connect(self) -> None:
        """Let packets pass the link."""
        _ip("link", "set", self._link, "up")

    def cut_off(self) -> None:
        """Lose every packet of the link."""
        _ip("link", "set", self._link, "down")

    def enter(self) -> None:
        """Let the calling thread open its later sockets on the host."""
        libc = ctypes.CDLL(None, use_errno=True)
        place = os.open(f"{NAMESPACES}/{self.namespace}", os.O_RDONLY)
        try:
            if libc.setns(place, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter {self.namespace}")
        finally:
            os.close(place)

    def close(self) -> None:
        """Remove the host and its link."""
        _ip("netns", "del", self.namespace)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
