"""Schema ids from a schema registry, for sites whose tools read Confluent's framing."""

import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schemas.codec.confluent import ConfluentCodec
from streams.codecs.schema_lookups import SchemaLookups
from streams.kafka.kafka_errors import BrokerError

NOT_FOUND = 404
WITHIN_S = 3.0  # for the answer to a registration, which is made twice
# For a look-up, which is made once. A reader makes four in a row at most, and ends if it stands
# still for longer than its fence (``role_process.FENCE_S``): the record would get the blame.
READ_WITHIN_S = 1.0


def registry_codec(url: str, topic: str) -> ConfluentCodec:
    """Return a codec for a topic with schemas under ``<topic>-value`` in the registry at ``url``.

    Raise ``BrokerError`` if the extra is missing; the codec does if the registry does not answer.
    """
    writing, reading = _client(url, WITHIN_S, retries=1), _client(url, READ_WITHIN_S, retries=0)
    subject = f"{topic}-value"

    def id_of(text: str) -> int:
        return _registered(writing, url, subject, text)

    lookups = SchemaLookups(
        ask=lambda number: _schema(reading, url, number),
        versions=lambda: _versions(reading, url, subject),
        version=lambda number: _version(reading, url, subject, number),
        now=time.monotonic,
    )
    codec = ConfluentCodec(id_of, lookups.text_of)
    for client in (writing, reading):
        weakref.finalize(codec, client.close)
    return codec


def _client(url: str, within_s: float, *, retries: int) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise BrokerError(
            f"a schema registry needs the extra: pip install 'headrace[registry]' ({error})"
        ) from error
    return SchemaRegistryClient.new_client(
        {"url": url, "timeout": within_s, "max.retries": retries}
    )


def _registered(client: Any, url: str, subject: str, text: str) -> int:
    from confluent_kafka.schema_registry import Schema

    with _answering(url, f"took no schema for {subject}"):
        return int(client.register_schema(subject, Schema(text, "AVRO")))


def _schema(client: Any, url: str, number: int) -> str:
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    with _answering(url, f"gave no schema {number}"):
        try:
            return str(client.get_schema(number).schema_str)
        except SchemaRegistryError as error:
            if error.http_status_code == NOT_FOUND:
                raise LookupError(number) from error
            raise


def _versions(client: Any, url: str, subject: str) -> list[int]:
    """Return the versions of a subject; none if it does not exist."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    with _answering(url, f"listed no versions of {subject}"):
        try:
            return list(client.get_versions(subject))
        except SchemaRegistryError as error:
            if error.http_status_code == NOT_FOUND:
                return []
            raise


def _version(client: Any, url: str, subject: str, version: int) -> tuple[int, str]:
    """Return the id and the text of one version of a subject."""
    with _answering(url, f"gave no version {version} of {subject}"):
        found = client.get_version(subject, version)
        return int(found.schema_id), str(found.schema.schema_str)


@contextmanager
def _answering(url: str, refused: str) -> Iterator[None]:
    """Turn errors of the registry and of the connection to it into ``BrokerError``."""
    import httpx2  # their errors are not OSErrors
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        yield
    except SchemaRegistryError as error:
        raise BrokerError(f"the schema registry at {url} {refused}: {error}") from error
    except (OSError, httpx2.TransportError) as error:
        raise BrokerError(
            f"the schema registry at {url} does not answer ({error}); start it or correct "
            "schema_registry"
        ) from error
