"""Access to the dashboard: the token, the requested host, and the page's security policy.

The token in the printed address admits a browser once; from then on a cookie does, since an event
stream cannot send custom headers. Names in ``Host`` are checked against DNS rebinding: no web page
can reach the dashboard through a name that resolves to this machine.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import DashboardError

LEAST_TOKEN = 16  # characters
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
# The page loads nothing from other origins, runs in no frame and sends no form.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class PageAccess:
    """``token`` grants access; ``hosts`` are the accepted values of ``Host``, without port."""

    token: str
    hosts: frozenset[str]

    def knows(self, host: str) -> bool:
        """Return whether a value of the header ``Host`` names this dashboard."""
        return _without_port(host.lower()) in self.hosts

    def admits(self, token: str) -> bool:
        """Return whether the token is correct, in the same time for every wrong one."""
        return hmac.compare_digest(token.encode(errors="replace"), self.token.encode())


def page_access(host: str, token_file: Path | None, names: tuple[str, ...] = ()) -> PageAccess:
    """Return the access of a dashboard that listens on ``host``, and is known by ``names`` too.

    The token is the first line of the file; without a file it is random, which only an address of
    this machine permits. Raises ``DashboardError``.
    """
    if token_file is None and not _is_local(host):
        raise DashboardError(
            f"{host} is not an address of this machine alone, so the dashboard needs a token of "
            "your choice there; write one into a file and name it with --token-file"
        )
    token = secrets.token_urlsafe(24) if token_file is None else _token_in(token_file)
    known = {*LOCAL_NAMES, _in_brackets(host.lower()), *(name.lower() for name in names)}
    return PageAccess(token, frozenset(known))


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _token_in(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8-sig").split()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise DashboardError(f"the token in {path} cannot be read ({why})") from error
    if not lines or len(lines[0]) < LEAST_TOKEN:
        raise DashboardError(
            f"the token in {path} has {len(lines[0]) if lines else 0} characters; write one of "
            f"{LEAST_TOKEN} or more, as `openssl rand -hex 24` makes them"
        )
    return lines[0]
