"""Schema ids from a schema registry, for sites whose tools read Confluent's framing."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schemas.codec.confluent import ConfluentCodec
from streams.kafka.kafka_errors import BrokerError

NOT_FOUND = 404


def registry_codec(url: str, topic: str) -> ConfluentCodec:
    """Return a codec for a topic with schemas under ``<topic>-value`` in the registry at ``url``.

    Raise ``BrokerError`` if the extra is missing; the codec does if the registry does not answer.
    """
    client = _client(url)

    def id_of(text: str) -> int:
        return _registered(client, url, f"{topic}-value", text)

    def schema_of(number: int) -> str:
        return _schema(client, url, number)

    codec = ConfluentCodec(id_of, schema_of)
    weakref.finalize(codec, client.close)
    return codec


def _client(url: str) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise BrokerError(
            f"a schema registry needs the extra: pip install 'headrace[registry]' ({error})"
        ) from error
    return SchemaRegistryClient.new_client({"url": url})


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


@contextmanager
def _answering(url: str, refused: str) -> Iterator[None]:
    """Turn the errors of the registry and of the way to it into ``BrokerError``."""
    import httpx2  # whose errors are no OSErrors
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
