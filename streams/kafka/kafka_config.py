"""How to reach the brokers, and as whom? librdkafka's property names, for every client there is.

A property with the prefix ``producer.``, ``consumer.`` or ``admin.`` is for clients of that kind
only and beats the one without. Pure: nothing is read and no client is made here
(headrace/broker/connect.py reads files, streams/kafka/kafka_client.py makes confluent-kafka's
clients,
streams/kafka/faust_security.py speaks aiokafka's and Faust's language).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.user_errors import HeadraceError

KINDS = ("producer", "consumer", "admin")
TOPICS = "topics"  # properties of the topics that are made, not of a client
HIDDEN = "[hidden]"

# That nothing is lost, and counted once, rests on these (docs/decisions/0004).
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
# Of the library's own lines on stderr only those about its end; the rest comes as errors to its
# callbacks too, and while a broker is away each client would write twenty lines a second.
_QUIET = 2
_SHORTEST_SECRET = 3  # a shorter one, taken out of a sentence, would leave no sentence


class KafkaConfigError(HeadraceError, ValueError):
    """Client properties that cannot be used; one sentence with the mend."""


@dataclass(frozen=True, slots=True, repr=False)
class KafkaConfig:
    """The brokers' addresses and librdkafka's properties. No secret shows in its ``repr``."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def client(self, kind: str) -> dict[str, Any]:
        """confluent-kafka's settings for a client of a kind, one of ``KINDS``."""
        return {
            "allow.auto.create.topics": False,
            "reconnect.backoff.max.ms": 500,
            "socket.nagle.disable": True,
            "log_level": _QUIET,
            **self.common(),
            **{n.removeprefix(f"{kind}."): v for n, v in self.properties.items() if _is(kind, n)},
            "bootstrap.servers": self.bootstrap,
        }

    def common(self) -> dict[str, str]:
        """The properties of every client."""
        ours = (*KINDS, TOPICS)
        return {n: v for n, v in self.properties.items() if not any(_is(k, n) for k in ours)}

    @property
    def protocol(self) -> str:
        """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        return self.properties.get("security.protocol", "plaintext").upper()

    @property
    def who(self) -> str:
        """How a refusal calls this client."""
        user = self.properties.get("sasl.username")
        if user:
            return f"user {user!r}"
        certificate = self.properties.get("ssl.certificate.location")
        return f"the owner of {certificate}" if certificate else "this client, which has no name,"

    def shown(self) -> dict[str, str]:
        """The properties as a person or a log may see them."""
        return {n: HIDDEN if is_secret(n) else v for n, v in self.properties.items()}

    def hide(self, text: str) -> str:
        """A text without the secrets that stand in the properties."""
        secrets = [v for n, v in self.properties.items() if is_secret(n)]
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, HIDDEN)
        return text

    def __repr__(self) -> str:
        return f"KafkaConfig({self.bootstrap!r}, {self.shown()!r})"


def is_secret(name: str) -> bool:
    """Whether the value of a property of this name must not be seen."""
    name = name.lower()
    return any(word in name for word in _SECRET) and not name.endswith(".location")


def parse_properties(
    text: str, source: str, env: Mapping[str, str], read: Callable[[str], str]
) -> dict[str, str]:
    """The properties of a text of ``name=value`` lines, with every reference replaced.

    ``${NAME}`` stands for a variable of ``env``, ``${file:/path}`` for what ``read`` returns for
    the path, without the line break at its end; ``$${`` for the characters ``${``.
    Raises ``KafkaConfigError`` that begins with ``source`` and the line.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        name, mark, value = (part.strip() for part in line.partition("="))
        try:
            if not mark or not name:
                # Not the line itself: it may be a secret that lost its name.
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
