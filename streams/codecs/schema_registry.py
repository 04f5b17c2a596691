"""Schema ids from a schema registry, for sites whose tools read Confluent's framing."""

from typing import Any

from schemas.codec.confluent import ConfluentCodec
from streams.kafka.kafka_errors import BrokerError

NOT_FOUND = 404


def registry_codec(url: str, topic: str) -> ConfluentCodec:
    """Return a codec for a topic with schemas under ``<topic>-value`` in the registry at ``url``.

    Raise ``BrokerError`` if the extra is missing or the registry does not answer.
    """
    try:
        from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
        from confluent_kafka.schema_registry.error import SchemaRegistryError
    except ImportError as error:
        raise BrokerError(
            f"a schema registry needs the extra: pip install 'headrace[registry]' ({error})"
        ) from error
    client: Any = SchemaRegistryClient.new_client({"url": url})

    def id_of(text: str) -> int:
        try:
            return int(client.register_schema(f"{topic}-value", Schema(text, "AVRO")))
        except (SchemaRegistryError, OSError) as error:
            raise BrokerError(f"the schema registry at {url} took no schema: {error}") from error

    def schema_of(number: int) -> str:
        try:
            return str(client.get_schema(number).schema_str)
        except SchemaRegistryError as error:
            if error.http_status_code == NOT_FOUND:
                raise LookupError(number) from error
            raise BrokerError(f"the schema registry at {url} does not answer: {error}") from error

    return ConfluentCodec(id_of, schema_of)
