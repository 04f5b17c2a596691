"""The client library's errors as sentences with a remedy."""

from confluent_kafka import KafkaError

from schemas.user_errors import NO_BROKER, HeadraceError
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import MOST_BYTES

FORBIDDEN = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

# Errors of requests that no retry mends.
HOPELESS = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
)

_CLOCKS = (
    "compare this host's clock with the broker's (`headrace doctor FILE`), and check the topic's "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms"
)
# What to do about a record that the broker refuses. Of a batch with one record that it refuses,
# the others have the code INVALID_RECORD.
REMEDIES = {
    KafkaError.MSG_SIZE_TOO_LARGE: f"raise the topic's {MOST_BYTES}",
    KafkaError.INVALID_TIMESTAMP: _CLOCKS,
    KafkaError.INVALID_RECORD: f"{_CLOCKS}, and its cleanup.policy",
    KafkaError.POLICY_VIOLATION: "ask the broker's operators which records it takes",
}


class BrokerError(HeadraceError):
    """The broker cannot be used; the message names the attempt and the remedy."""

    exit_code = NO_BROKER


def turned_away(config: KafkaConfig, error: KafkaError) -> str | None:
    """Return the message for refused credentials or certificates; None for transient errors."""
    if error.code() == KafkaError._AUTHENTICATION:
        return config.hide(
            f"{config.who} was not let in by the broker at {config.bootstrap} "
            f"({unadorned(error)}); check sasl.mechanism, sasl.username and sasl.password"
        )
    if error.code() == KafkaError._SSL and "certificate" in error.str():
        return config.hide(
            f"the broker at {config.bootstrap} and this client do not trust each other's "
            f"certificates ({unadorned(error)}); name the authority's certificate in "
            "ssl.ca.location, and yours in ssl.certificate.location if the broker asks for one"
        )
    return None


def unreachable(config: KafkaConfig, last: KafkaError | None) -> str:
    """Return the message for a broker that does not answer."""
    why = f" ({unadorned(last)})" if last is not None else ""
    return config.hide(
        f"no Kafka broker answers at {config.bootstrap} with security.protocol={config.protocol}"
        f"{why}; start one with `headrace broker start`, name yours with --bootstrap, or say how "
        "to reach it with --kafka-config"
    )


def forbidden(config: KafkaConfig, operation: str, resource: str, name: str) -> str:
    """Return the message for an operation that the broker's ACLs deny."""
    return (
        f"{config.who} has no right to {operation} on {resource} {name!r}; "
        "`headrace acls FILE` prints the ACLs that each role needs"
    )


def refusal(
    config: KafkaConfig, error: KafkaError, operation: str, resource: str, name: str
) -> str:
    """Return the message for an operation that the broker refused permanently, by ACL or not, or to
    which it gave no answer in time."""
    if error.code() in FORBIDDEN:
        return forbidden(config, operation, resource, name)
    if error.code() == KafkaError._MSG_TIMED_OUT:
        return config.hide(
            f"the broker at {config.bootstrap} did not answer a {operation} on {resource} {name!r} "
            "in time; check it with `headrace doctor FILE`"
        )
    sentence = turned_away(config, error)
    remedy = REMEDIES.get(error.code())
    return sentence or config.hide(
        f"the broker refused to {operation} on {resource} {name!r}: {unadorned(error)}"
        + (f"; {remedy}" if remedy else "")
    )


def unreadable(config: KafkaConfig, error: KafkaError, topic: str, group: str) -> str | None:
    """Return the message for a consumer's permanent error; None for one after which the library
    retries."""
    if not error.fatal() and error.code() not in HOPELESS:
        return None
    of_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    resource = ("group", group) if of_group else ("topic", topic)
    return refusal(config, error, "Read", *resource)


def unadorned(error: KafkaError) -> str:
    """Return the library's message without addresses and timings."""
    words: str = error.str().split(" (after ")[0]
    address, mark, rest = words.partition(": ")
    return rest if mark and "/" in address else words
