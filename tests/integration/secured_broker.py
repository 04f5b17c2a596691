"""A real broker that requires a password and enforces ACLs."""

import base64
import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.broker.broker_home import (
    Home,
    Identity,
    format_command,
    log4j_properties,
    serve_command,
    server_properties,
)
from headrace.broker.broker_process import death_of, end_all, format_if_new, is_ours, spawn
from headrace.broker.java_runtime import java_runtime
from headrace.broker.local_broker import _free_ports
from tests.integration.certificates import make_authority

ADMIN = "admin"
MECHANISM = "SCRAM-SHA-512"
PATIENCE_S = 60.0

# Only the broker itself uses the controller's listener; it connects anonymously with all rights.
_SECURITY = """
listener.name.sasl_ssl.ssl.keystore.type=PEM
listener.name.sasl_ssl.ssl.keystore.location={server}
sasl.enabled.mechanisms=SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required \
username="{admin}" password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={authority}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:{admin};User:ANONYMOUS
"""


@dataclass(frozen=True)
class Secured:
    """The broker, and the client properties of its users."""

    bootstrap: str
    authority: Path
    passwords: dict[str, str]

    def properties(self, user: str, **more: str) -> dict[str, str]:
        """Return a client's properties; ``more`` uses Python names (ssl_ca_location)."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self.passwords.get(user, "nobody's"),
            "ssl.ca.location": str(self.authority),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def admin(self) -> AdminClient:
        """Return a client with all rights."""
        return AdminClient({**self.properties(ADMIN), "log_level": 0})


@contextlib.contextmanager
def secured_broker(folder: Path, users: list[str]) -> Iterator[Secured]:
    """Run a broker for the duration of the block. Its users have passwords and no rights."""
    port, controller_port = _free_ports()
    cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
    identity = Identity(cluster=cluster, port=port, controller_port=controller_port)
    home = Home(folder / "broker")
    home.path.mkdir(parents=True)
    authority = make_authority(folder / "authority.pem")
    passwords = {user: uuid.uuid4().hex for user in (ADMIN, *users)}
    secured = Secured(f"127.0.0.1:{port}", authority.file, passwords)
    home.log4j_properties.write_text(log4j_properties(home))
    home.server_properties.write_text(
        server_properties(home, identity).replace("PLAINTEXT://127.0.0.1", "SASL_SSL://127.0.0.1")
        .replace("inter.broker.listener.name=PLAINTEXT", "inter.broker.listener.name=SASL_SSL")
        .replace(",PLAINTEXT:PLAINTEXT", ",SASL_SSL:SASL_SSL")
        + _SECURITY.format(
            server=authority.server(folder / "server.pem"),
            authority=authority.file,
            admin=ADMIN,
            password=passwords[ADMIN],
        )
    )  # fmt: skip
    java = java_runtime(None)
    scram = [
        part
        for user, password in passwords.items()
        for part in ("--add-scram", f"{MECHANISM}=[name={user},password={password}]")
    ]
    with java.recorded():
        format_if_new(home, [*format_command(java, home, identity), *scram])
    pid = spawn(home, serve_command(java, home))
    try:
        _await(home, pid, secured)
        yield secured
    finally:
        end_all([pid])


def _await(home: Home, pid: int, secured: Secured) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            secured.admin().list_topics(timeout=1.0)
            return
        except KafkaException:
            if not is_ours(pid, home):
                raise death_of(home) from None
            assert time.monotonic() < until, f"the secured broker does not answer; see {home.log}"
