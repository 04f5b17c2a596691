"""Client properties: read, resolved, passed to each kind of client, and never shown."""

import pickle
import ssl
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from faust.auth import SASLCredentials, SSLCredentials
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.connect import KAFKA_CONFIG, kafka_config, read_kafka_properties
from streams.kafka.faust_security import to_faust
from streams.kafka.kafka_client import admin, consumer, heartbeat_id, producer
from streams.kafka.kafka_config import (
    HIDDEN,
    KafkaConfig,
    KafkaConfigError,
    is_secret,
    parse_properties,
)
from streams.kafka.kafka_errors import forbidden, refusal, turned_away, unreachable

SCRAM = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "ann",
    "sasl.password": "a-very-secret-word",
}


def parsed(text: str, env: dict[str, str] | None = None, **files: str) -> dict[str, str]:
    def read(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(2, "No such file or directory")
        return files[path]

    return parse_properties(text, "client.properties", env or {}, read)


# ---------------------------------------------------------------------- reading


def test_lines_are_properties_and_the_rest_is_comment() -> None:
    text = "# who\n! and\n\n security.protocol = SASL_SSL \nsasl.password=a=b#c\n"
    assert parsed(text) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b#c"}


def test_references_stand_for_the_environment_and_for_files() -> None:
    text = "sasl.username=${USER}\nsasl.password=${file:secret}\nclient.id=a-$${x}-${USER}$"
    assert parsed(text, {"USER": "ann"}, secret="line\n") == {
        "sasl.username": "ann",
        "sasl.password": "line",
        "client.id": "a-${x}-ann$",
    }


def test_what_a_reference_stands_for_is_not_read_again() -> None:
    assert parsed("sasl.password=${P}", {"P": "${Q}"}) == {"sasl.password": "${Q}"}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sasl.password=${P}", "sasl.password names the environment variable 'P', which is not"),
        ("sasl.password=${file:/x}", "sasl.password names the file '/x', which cannot be read"),
        ("sasl.password=${P", "sasl.password has '${' without '}'"),
        ("hunter2", "this line is no property; write name=value"),
        ("=hunter2", "this line is no property; write name=value"),
        ("enable.auto.commit=true", "enable.auto.commit is Headrace's own to set; remove it"),
        ("producer.acks=1", "producer.acks is Headrace's own to set; remove it"),
        ("error_cb=os.system", "error_cb is Headrace's own to set; remove it"),
        ("consumer.bootstrap.servers=a:1", "bootstrap.servers is one for all clients"),
        ("client.id=a", "client.id is here a second time; remove one"),
    ],
)
def test_a_line_that_cannot_be_used_is_one_sentence(line: str, sentence: str) -> None:
    with pytest.raises(KafkaConfigError) as raised:
        parsed(f"client.id=me\n{line}")
    assert str(raised.value).startswith(f"client.properties:2: {sentence}")
    assert "hunter2" not in str(raised.value)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1))
def test_any_text_survives_as_the_value_of_a_variable(text: str) -> None:
    assert parsed("sasl.password=${P}", {"P": text}) == {"sasl.password": text.rstrip("\r\n")}


@given(st.text())
def test_no_text_is_more_than_properties_or_a_sentence(text: str) -> None:
    try:
        said = [f"client.properties:{name}" for name in parsed(text) if name]
    except KafkaConfigError as error:
        said = [str(error)]
    assert all(each.startswith("client.properties:") for each in said)


def test_the_file_of_the_environment_is_read_and_the_option_beats_its_brokers(
    tmp_path: Path,
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=kafka:9093\nclient.id=${ME}\n")
    env = {KAFKA_CONFIG: str(path), "ME": "me"}
    assert kafka_config(None, env) == KafkaConfig("kafka:9093", {"client.id": "me"})
    assert kafka_config("other:1", env) == KafkaConfig("other:1", {"client.id": "me"})
    assert kafka_config(None, {}) == KafkaConfig("", {})


def test_a_properties_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(KafkaConfigError, match=r"none\.properties cannot be read \(No such file"):
        read_kafka_properties(tmp_path / "none.properties", {})


def test_the_file_in_the_documentation_can_be_read() -> None:
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "security.md").read_text()
    text = page.split("```properties\n")[1].split("```")[0]
    files = {"/run/secrets/kafka-password": "word\n"}
    found = parse_properties(text, "docs", {"KAFKA_USER": "ann"}, files.__getitem__)
    assert (found["sasl.username"], found["sasl.password"]) == ("ann", "word")
    made = KafkaConfig("a:1", {n: v for n, v in found.items() if not n.startswith("ssl.")})
    assert made.client("consumer")["fetch.wait.max.ms"] == "20"
    assert "fetch.wait.max.ms" not in made.client("producer")


# ---------------------------------------------------------------------- clients


def test_a_property_with_a_prefix_is_for_clients_of_that_kind_and_beats_the_other() -> None:
    config = KafkaConfig(
        "a:1", {"client.id": "all", "consumer.client.id": "mine", "log_level": "0"}
    )
    assert [config.client(kind)["client.id"] for kind in ("producer", "consumer", "admin")] == [
        "all", "mine", "all",
    ]  # fmt: skip
    assert config.common() == {"client.id": "all", "log_level": "0"}
    assert "consumer.client.id" not in config.client("consumer")


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({}, "headrace-heartbeats"),
        ({"client.id": "shop"}, "shop-heartbeats"),
        ({"client.id": "shop", "producer.client.id": "sender"}, "sender-heartbeats"),
    ],
)
def test_reports_and_leases_have_a_client_id_of_their_own(
    properties: dict[str, str], found: str
) -> None:
    assert heartbeat_id(KafkaConfig("a:1", properties)) == {"client.id": found}


def test_properties_reach_the_client_library_which_knows_them_best() -> None:
    for make in (admin, producer, lambda config: consumer(config, "any")):
        with pytest.raises(KafkaConfigError, match="No such configuration property: "):
            make(KafkaConfig("a:1", {"no.such": "thing"}))


def test_delivery_guarantee_properties_cannot_be_overridden() -> None:
    # Bypass the reader, as a program might: the client is made with our values.
    made = producer(KafkaConfig("a:1", {"acks": "0", "enable.idempotence": "false"}), log_level=0)
    made.close()
    with pytest.raises(KafkaConfigError):  # idempotence and acks=0 are incompatible
        producer(KafkaConfig("a:1", {}), acks="0")


def test_a_secret_does_not_stand_in_the_error_of_the_client_library() -> None:
    secret = {**SCRAM, "ssl.key.pem": "no-pem-at-all", "security.protocol": "ssl"}
    with pytest.raises(KafkaConfigError) as raised:
        admin(KafkaConfig("a:1", secret))
    assert "no-pem-at-all" not in str(raised.value)


def test_scram_in_the_words_of_faust() -> None:
    config = KafkaConfig("a:1", SCRAM)
    found = to_faust(config)
    assert isinstance(found, SASLCredentials)
    assert (found.username, found.password, found.ssl_context) == (
        "ann", "a-very-secret-word", None,
    )  # fmt: skip
    assert to_faust(KafkaConfig("a:1")) is None


def test_tls_without_host_name_checks_requires_an_explicit_property() -> None:
    plain = to_faust(KafkaConfig("a:1", {"security.protocol": "ssl"}))
    assert isinstance(plain, SSLCredentials)
    assert (plain.context.check_hostname, plain.context.verify_mode) == (True, ssl.CERT_REQUIRED)
    lax = {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"}
    loose = to_faust(KafkaConfig("a:1", lax))
    assert isinstance(loose, SSLCredentials)
    assert (loose.context.check_hostname, loose.context.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_the_control_app_trusts_whom_the_other_roles_trust() -> None:
    # From Python 3.13 on, its default requires more of an authority than librdkafka does.
    found = to_faust(KafkaConfig("a:1", {"security.protocol": "ssl"}))
    assert isinstance(found, SSLCredentials)
    assert not found.context.verify_flags & ssl.VERIFY_X509_STRICT


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"security.protocol": "tls"}, "security.protocol 'TLS' is unknown"),
        ({**SCRAM, "sasl.mechanism": "OAUTHBEARER"}, "cannot use sasl.mechanism 'OAUTHBEARER'"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/none"}, "check ssl.ca.location"),
        ({"security.protocol": "ssl", "ssl.key.pem": "x"}, "cannot use ssl.key.pem"),
    ],
)
def test_properties_that_the_control_app_cannot_use_are_reported(
    properties: dict[str, str], sentence: str
) -> None:
    with pytest.raises(KafkaConfigError, match=sentence):
        to_faust(KafkaConfig("a:1", properties))


# ---------------------------------------------------------------------- secrets


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.jaas.config",
        "sasl.oauthbearer.client.secret", "producer.sasl.password", "sasl.oauthbearer.config",
        "sasl.oauthbearer.token", "basic.auth.user.info", "SASL.PASSWORD",
    ],
)  # fmt: skip
def test_secrets_are_known_by_the_names_of_their_properties(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["sasl.username", "ssl.key.location", "security.protocol"])
def test_user_names_and_addresses_are_not_secret(name: str) -> None:
    assert not is_secret(name)


def test_no_secret_shows_whatever_prints_the_configuration() -> None:
    config = KafkaConfig("a:1", SCRAM)
    for text in (repr(config), str(config), f"{config}", repr([config]), repr(config.shown())):
        assert "a-very-secret-word" not in text
        assert HIDDEN in text
    assert "ann" in repr(config)
    assert config.hide("was a-very-secret-word right?") == f"was {HIDDEN} right?"
    assert pickle.loads(pickle.dumps(config)) == config


# ---------------------------------------------------------------------- refusals


def test_refusals_name_the_user_the_operation_and_what_to_do() -> None:
    config = KafkaConfig("a:1", SCRAM)
    assert forbidden(config, "Write", "topic", "p.work.read") == (
        "user 'ann' has no right to Write on topic 'p.work.read'; "
        "`headrace acls FILE` prints the ACLs that each role needs"
    )
    nameless = forbidden(KafkaConfig("a:1"), "Read", "group", "p.egress")
    assert nameless.startswith("this client, which has no name, has no right to Read on group")
    owner = KafkaConfig("a:1", {"ssl.certificate.location": "me.pem"})
    assert forbidden(owner, "Read", "topic", "t").startswith("the owner of me.pem has no right")


def test_only_permanent_errors_are_refusals() -> None:
    config = KafkaConfig("a:1", SCRAM)
    denied = KafkaError(
        KafkaError._AUTHENTICATION,
        "sasl_ssl://a:1/bootstrap: SASL authentication error: no a-very-secret-word (after 3ms)",
    )
    assert turned_away(config, denied) == (
        f"user 'ann' was not let in by the broker at a:1 (SASL authentication error: no {HIDDEN}); "
        "check sasl.mechanism, sasl.username and sasl.password"
    )
    for code, words in (
        (KafkaError._TRANSPORT, "refused"),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
        (KafkaError._SSL, "SSL handshake failed: Disconnected"),
    ):
        assert turned_away(config, KafkaError(code, words)) is None
    away = unreachable(config, KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    assert away.startswith(
        "no Kafka broker answers at a:1 with security.protocol=SASL_PLAINTEXT (Connection refused)"
    )
    full = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "Broker: Message size too large")
    assert refusal(config, full, "Write", "topic", "t") == (
        "the broker refused to Write on topic 't': Broker: Message size too large; raise the "
        "topic's max.message.bytes"
    )
    # A load whose broker had stopped ended with "the broker refused to Write".
    silent = KafkaError(KafkaError._MSG_TIMED_OUT, "Local: Message timed out")
    assert refusal(config, silent, "Write", "topic", "t") == (
        "the broker at a:1 did not answer a Write on topic 't' in time; check it with "
        "`headrace doctor FILE`"
    )


def test_properties_of_topics_are_no_clients() -> None:
    config = KafkaConfig("b:1", {"topics.replication.factor": "2", "client.id": "x"})
    assert config.common() == {"client.id": "x"}
    assert "topics.replication.factor" not in config.client("admin")
