"""The dashboard that `up` runs beside the roles: its port, its token, and the address to open."""

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.config.topology import Role
from headrace.machine import free_port

DASHBOARD = "dashboard"
TOKEN_FILE = "dashboard.token"


@dataclass(frozen=True, slots=True)
class PageAddress:
    """The port and the token of a dashboard on 127.0.0.1; a restart of the role keeps both."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """The address to open."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def keep(self, directory: Path) -> None:
        """Write the token to the file that the role reads, readable by this user only."""
        path = directory / TOKEN_FILE
        path.unlink(missing_ok=True)
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            file.write(f"{self.token}\n")


def page_address(port: int | None) -> PageAddress | None:
    """Return a new address at the port (0: a free one); None without a port."""
    if port is None:
        return None
    return PageAddress(port or free_port(), secrets.token_urlsafe(24))


def with_address(
    roles: Iterable[Role], page: PageAddress | None, directory: Path
) -> tuple[Role, ...]:
    """Return the roles, the dashboard among them with its port and token."""
    if page is None:
        return tuple(roles)
    arguments = ("--port", str(page.port), "--token-file", str(directory / TOKEN_FILE))
    return tuple(
        replace(role, arguments=arguments) if role.kind == DASHBOARD else role for role in roles
    )
