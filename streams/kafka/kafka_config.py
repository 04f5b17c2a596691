"""Client configuration in librdkafka's property names: addresses, credentials, secrets.

A property with the prefix ``producer.``, ``consumer.`` or ``admin.`` applies to clients of that
kind only and overrides the one without. This module is pure: headrace/broker/connect.py reads
files, streams/kafka/kafka_client.py creates confluent-kafka's clients, and
streams/kafka/faust_security.py translates for aiokafka and Faust.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.user_errors import HeadraceError

KINDS = ("producer", "consumer", "admin")
TOPICS = "topics"  # properties of created topics, not of a client
HIDDEN = "[hidden]"
CLIENT_ID = "headrace"  # by which brokers count and limit requests, unless the properties name one

# The delivery guarantees depend on these properties (docs/decisions/0004).
_OURS = frozenset(
    {
        "acks", "allow.auto.create.topics", "auto.offset.reset", "delivery.report.only.error",
        "enable.auto.commit", "enable.auto.offset.store", "enable.idempotence",
        "enable.partition.eof", "group.id", "group.protocol", "metadata.broker.list",
        "request.required.acks", "transactional.id",
    }
)  # fmt: skip
_SECRET = (
    "password", "secret", "key", "token", "jaas", "credential", "user.info", "oauthbearer.config",
    "assertion",
)  # fmt: skip
_REFERENCE = re.compile(r"(\$?)\$\{([^}]*)(\}?)")
# The library writes only critical lines to stderr; its callbacks receive the rest as errors, and
# while a broker is away each client would write twenty lines a second.
_QUIET = 2
_SHORTEST_SECRET = 3  # hiding a shorter one would make a sentence unreadable


class KafkaConfigError(HeadraceError, ValueError):
    """Client properties are unusable; the message is one sentence with the remedy."""


@dataclass(frozen=True, slots=True, repr=False)
class KafkaConfig:
    """The brokers' addresses and librdkafka's properties; ``repr`` hides secrets."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def client(self, kind: str) -> dict[str, Any]:
        """Return confluent-kafka's settings for a client of a kind, one of ``KINDS``."""
        return {
            "allow.auto.create.topics": False,
            "client.id": CLIENT_ID,
            "reconnect.backoff.max.ms": 500,
            # Also the longest pause between two requests for a partition's new leader.
            "retry.backoff.max.ms": 250,
            "socket.nagle.disable": True,
            "log_level": _QUIET,
            **self.common(),
            **{n.removeprefix(f"{kind}."): v for n, v in self.properties.items() if _is(kind, n)},
            "bootstrap.servers": self.bootstrap,
        }

    def common(self) -> dict[str, str]:
        """Return the properties that apply to every client."""
        ours = (*KINDS, TOPICS)
        return {n: v for n, v in self.properties.items() if not any(_is(k, n) for k in ours)}

    @property
    def protocol(self) -> str:
        """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        return self.properties.get("security.protocol", "plaintext").upper()

    @property
    def who(self) -> str:
        """The name of this client in error messages."""
        user = self.properties.get("sasl.username")
        if user:
            return f"user {user!r}"
        certificate = self.properties.get("ssl.certificate.location")
        return f"the owner of {certificate}" if certificate else "this client, which has no name,"

    def shown(self) -> dict[str, str]:
        """Return the properties with secrets hidden."""
        return {n: HIDDEN if is_secret(n) else v for n, v in self.properties.items()}

    def hide(self, text: str) -> str:
        """Return a text with the properties' secrets hidden."""
        secrets = [v for n, v in self.properties.items() if is_secret(n)]
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, HIDDEN)
        return text

    def __repr__(self) -> str:
        return f"KafkaConfig({self.bootstrap!r}, {self.shown()!r})"


def is_secret(name: str) -> bool:
    """Return whether a property of this name holds a secret."""
    name = name.lower()
    return any(word in name for word in _SECRET) and not name.endswith(".location")


def parse_properties(
    text: str, source: str, env: Mapping[str, str], read: Callable[[str], str]
) -> dict[str, str]:
    """Parse ``name=value`` lines and resolve their references.

    ``${NAME}`` stands for a variable of ``env``, ``${file:/path}`` for ``read(path)`` without its
    final line break, ``$${`` for the characters ``${``. Raise ``KafkaConfigError`` that begins with
    ``source`` and the line number.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        name, mark, value = (part.strip() for part in line.partition("="))
        try:
            if not mark or not name:
                # Do not quote the line: it may be a secret without its name.
                raise KafkaConfigError("this line is no property; write name=value")
            _check_name(name, found)
            found[name] = _resolved(name, value, env, read)
        except KafkaConfigError as error:
            raise KafkaConfigError(f"{source}:{number}: {error}") from None
    return found


def _check_name(name: str, found: Mapping[str, str]) -> None:
    bare = name
    for kind in KINDS:
        bare = bare.removeprefix(f"{kind}.")
    if name in found:
        raise KafkaConfigError(f"{name} is here a second time; remove one")
    if bare in _OURS or bare.endswith("_cb"):
        raise KafkaConfigError(f"{name} is Headrace's own to set; remove it")
    if bare == "bootstrap.servers" and bare != name:
        raise KafkaConfigError("bootstrap.servers is one for all clients; write it without prefix")


def _resolved(name: str, value: str, env: Mapping[str, str], read: Callable[[str], str]) -> str:
    def replaced(match: re.Match[str]) -> str:
        escaped, reference, closed = match.groups()
        if escaped:
            return match.group()[1:]
        if not closed:
            raise KafkaConfigError(
                f"{name} has '${{' without '}}'; close it, or write '$${{' for the characters"
            )
        return _looked_up(name, reference, env, read)

    return _REFERENCE.sub(replaced, value)


def _looked_up(
    name: str, reference: str, env: Mapping[str, str], read: Callable[[str], str]
) -> str:
    scheme, mark, path = reference.partition(":")
    if mark and scheme == "file":
        try:
            return read(path).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise KafkaConfigError(
                f"{name} names the file {path!r}, which cannot be read ({why}); "
                "write the file or name another"
            ) from None
    if reference not in env:
        raise KafkaConfigError(
            f"{name} names the environment variable {reference!r}, which is not set; "
            "set it before the command"
        )
    return env[reference]


def _is(kind: str, name: str) -> bool:
    return name.startswith(f"{kind}.")
