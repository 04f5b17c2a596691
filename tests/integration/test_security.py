"""Every role has its own user with minimal rights, on a broker that enforces both."""

import argparse
import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from benchmarks.squares import right
from headrace.broker.connect import BOOTSTRAP, KAFKA_CONFIG, read_kafka_properties
from headrace.broker.local_broker import _free_ports
from headrace.cli.main import run
from headrace.client.formats import answers_in, read_answer
from headrace.client.topic_clients import Asker, Commander, Tail, retained_plans
from headrace.cluster.acl_lines import acl_lines, principals
from headrace.cluster.supervisor import last_word
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.errors import BAD_INPUT, NO_BROKER
from headrace.processes import end_session, environment
from schemas.effects import LEASES, QUERIES, RESULTS
from schemas.records import Query
from streams.kafka.admin.acl_rights import ROLES
from streams.kafka.admin.preflight import prepare
from streams.kafka.admin.topic_settings import set_stamps, settings_of
from streams.kafka.kafka_client import consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.leases.egress_lease import EgressLease
from streams.topics import LEASE_MS, TOO_OLD, Stamps, physical
from tests.integration.certificates import make_authority
from tests.integration.secured_broker import Secured, secured_broker

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
SECONDS = 5.0  # within which a user gets the error
UP_WITHIN_S = 60.0
WAIT_S = 30.0  # for the broker, on a busy machine
NAME = "guarded"
DESCRIPTION: dict[str, Any] = {
    "name": NAME,
    "slo": "20s",
    "results": "json",
    "combine": "benchmarks.squares:total",
    "tasks": {
        "split": {
            "slots": 2,
            "children": ["square"],
            "variants": {"plain": {"operator": "benchmarks.squares:Split"}},
        },
        "square": {
            "slots": 2,
            "variants": {"plain": {"operator": "benchmarks.squares:Square"}},
        },
    },
    "cluster": {"devices": {"cpu": 2}},
}
PROCESSES = {
    "control": (),
    "egress": (),
    "worker": ("--name", "cpu-0", "--device", "cpu"),
    "worker-1": ("--name", "cpu-1", "--device", "cpu"),
    "ingress": (),
}


@dataclass(frozen=True)
class Guarded:
    """The pipeline on the secured broker, with a properties file per user."""

    broker: Secured
    file: PipelineFile
    folder: Path

    def kafka(self, role: str) -> KafkaConfig:
        """Return the settings of that role's properties file."""
        properties = read_kafka_properties(self.properties(role), self.env(role))
        return KafkaConfig(properties.pop(BOOTSTRAP), properties)

    def properties(self, role: str, **more: str) -> Path:
        """Write the role's properties file; the environment provides the password."""
        user = f"{NAME}-{role}"
        lines = {**self.broker.properties(user, **more), "sasl.password": "${KAFKA_PASSWORD}"}
        path = self.folder / f"{role}{len(more)}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return path

    def env(self, role: str) -> dict[str, str]:
        """Return the environment with the role's password."""
        return {**os.environ, "KAFKA_PASSWORD": self.broker.passwords[f"{NAME}-{role}"]}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(DESCRIPTION))
    file = read_pipeline_file(path)
    users = [f"{NAME}-{role}" for role in ROLES]
    with secured_broker(folder, users) as broker:
        give_rights(broker, acl_lines(file.pipeline, principals(file.pipeline, None)))
        found = Guarded(broker, file, folder)
        prepare(found.kafka("operator"), file.pipeline, "operator")
        yield found


OPERATIONS = {"".join(each.name.title().split("_")): each for each in AclOperation}


def give_rights(broker: Secured, lines: list[str]) -> None:
    """Apply the printed lines as ``kafka-acls`` would."""
    bindings = [
        AclBinding(
            resource, name, pattern, words.allow_principal, "*", operation, AclPermissionType.ALLOW
        )
        for line in lines
        if line and not line.startswith("#")
        for words in [KAFKA_ACLS.parse_args(shlex.split(line)[1:])]
        for pattern in [ResourcePatternType[words.resource_pattern_type.upper()]]
        for resource, names in (
            (ResourceType.TOPIC, words.topic),
            (ResourceType.GROUP, words.group),
            (ResourceType.TRANSACTIONAL_ID, words.transactional_id),
        )
        for name in names
        for operation in (OPERATIONS[each] for each in words.operation)
    ]
    give(broker, bindings)


def give(broker: Secured, bindings: list[AclBinding]) -> None:
    """Grant rights and wait until the broker enforces them, a moment after it has accepted them."""
    admin = broker.admin()
    for given in admin.create_acls(bindings).values():
        given.result(WAIT_S)
    until = time.monotonic() + WAIT_S
    while not set(bindings) <= set(admin.describe_acls(EVERY_ACL).result(WAIT_S)):
        assert time.monotonic() < until, "the broker does not know its ACLs"


def kafka_acls() -> argparse.ArgumentParser:
    """Return a parser of the ``kafka-acls`` options that Headrace prints."""
    parser = argparse.ArgumentParser("kafka-acls", exit_on_error=False, allow_abbrev=False)
    for name in ("--bootstrap-server", "--command-config", "--allow-principal"):
        parser.add_argument(name, required=True)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--topic", action="append", default=[])
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--transactional-id", action="append", default=[])
    parser.add_argument("--resource-pattern-type", default="literal")
    return parser


KAFKA_ACLS = kafka_acls()
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
    AclPermissionType.ANY,
)  # fmt: skip


@contextlib.contextmanager
def running(guarded: Guarded) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    """Run each role as a separate process, with its own user."""
    found: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, arguments in PROCESSES.items():
            role = name.partition("-")[0]
            line = [sys.executable, "-m", "headrace", role, str(guarded.file.path), *arguments]
            with (guarded.folder / f"{name}.log").open("wb") as log:
                found[name] = subprocess.Popen(
                    [*line, "--kafka-config", str(guarded.properties(role))],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT,
                    start_new_session=True, env=environment(guarded.env(role), os.getpid()),
                )  # fmt: skip
        yield found
    finally:
        for process in found.values():
            end_session(process.pid)
            process.wait()


def test_every_role_serves_with_its_own_user_and_the_printed_rights(guarded: Guarded) -> None:
    pipeline = guarded.file.pipeline
    began = time.monotonic()
    with (
        running(guarded) as processes,
        closing(Tail(guarded.kafka("consumer"), physical(NAME, RESULTS))) as tail,
        Asker(guarded.kafka("producer"), pipeline) as asker,
    ):
        answers: dict[str, Any] = {}
        number = 0
        # Ingress refuses queries that arrive before the first plan.
        while not any(a.outcome == "answered" for a in answers.values()):
            assert time.monotonic() - began < UP_WITHIN_S, story(guarded, answers)
            ended = {name: p.returncode for name, p in processes.items() if p.poll() is not None}
            assert not ended, story(guarded, answers)
            number += 1
            asker.ask(Query(payload=b"7", id=f"q{number}"))
            answers |= {answer.id: answer for answer in answers_in(tail.take(1.0), read_answer)}
        found = next(a for a in answers.values() if a.outcome == "answered")
        assert (found.result, found.incomplete) == (right(7), False)
        assert asker.refused == {}
        with closing(Commander(guarded.kafka("operator"), NAME)) as commander:
            assert commander.result(commander.give("replan", {}), 20.0).ok
        assert retained_plans(guarded.kafka("operator"), NAME) != []
    print(f"first answer {time.monotonic() - began:.1f} s after the start of the roles")


def story(guarded: Guarded, answers: dict[str, Any]) -> str:
    words = {name: last_word(guarded.folder / f"{name}.log") for name in PROCESSES}
    reasons = {answer.reason for answer in answers.values()}
    return f"no answer; processes' last words {words}, refusals {reasons}"


# ---------------------------------------------------------------------- authentication


@pytest.fixture
def command(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Any:
    """Run a command line on the pipeline; return its exit code and its last line."""
    monkeypatch.setenv(KAFKA_CONFIG, "")

    def given(*words: str, properties: Path, password: str) -> tuple[int, str]:
        monkeypatch.setenv("KAFKA_PASSWORD", password)
        command, *more = words
        began = time.monotonic()
        line = [command, str(guarded.file.path), *more, "--kafka-config", str(properties)]
        code = run(line)
        took = time.monotonic() - began
        assert took < SECONDS, f"{took:.1f} s"
        written = capfd.readouterr()
        assert password not in written.out + written.err
        return code, written.err.strip().splitlines()[-1]

    return given


ENTRANCES = {
    "status": ("--once",),
    "replan": (),
    "ingress": (),
    "egress": (),
    "worker": ("--name", "cpu-0", "--device", "cpu"),
    "control": (),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_a_wrong_password_is_reported_within_seconds(
    guarded: Guarded, command: Any, name: str
) -> None:
    role = name if name in ROLES else "operator"
    password = "let-me-in-please"
    code, said = command(
        name, *ENTRANCES[name], properties=guarded.properties(role), password=password
    )
    assert code == NO_BROKER
    assert f"user '{NAME}-{role}' was not let in by the broker at 127.0.0.1" in said
    assert "check sasl.mechanism, sasl.username and sasl.password" in said


def test_an_untrusted_certificate_is_reported_within_seconds(
    guarded: Guarded, command: Any
) -> None:
    stranger = make_authority(guarded.folder / "stranger.pem").file
    properties = guarded.properties("ingress", ssl_ca_location=str(stranger))
    code, said = command("ingress", properties=properties, password="any-password")
    assert code == NO_BROKER
    assert "do not trust each other's certificates" in said
    assert "name the authority's certificate in ssl.ca.location" in said


def test_a_broker_that_is_away_is_reported_within_seconds(guarded: Guarded, command: Any) -> None:
    nobody = f"127.0.0.1:{_free_ports()[0]}"
    properties = guarded.properties("egress", bootstrap_servers=nobody)
    for name in ("egress", "status"):
        code, said = command(name, properties=properties, password="any-password")
        assert code == NO_BROKER
        assert f"no Kafka broker answers at {nobody} with security.protocol=SASL_SSL" in said


def test_a_client_without_tls_gets_the_protocol_that_it_tried(
    guarded: Guarded, command: Any
) -> None:
    properties = guarded.properties("ingress", security_protocol="plaintext")
    code, said = command("ingress", properties=properties, password="any-password")
    assert code == NO_BROKER
    assert "with security.protocol=PLAINTEXT" in said


def test_an_unknown_property_is_bad_input(guarded: Guarded, command: Any) -> None:
    properties = guarded.properties("operator", no_such="thing")
    code, said = command("status", properties=properties, password="any-password")
    assert (code, "No such configuration property" in said) == (BAD_INPUT, True)


# ---------------------------------------------------------------------- authorization


def test_a_role_without_a_right_gets_the_name_of_the_right(guarded: Guarded, command: Any) -> None:
    # The consumer's user lacks the right to write that ingress needs.
    code, said = command(
        "ingress",
        properties=guarded.properties("consumer"),
        password=guarded.broker.passwords[f"{NAME}-consumer"],
    )
    assert code == NO_BROKER
    assert said == (
        f"headrace: user '{NAME}-consumer' has no right to Write on topic "
        f"'{NAME}.work.split'; `headrace acls FILE` prints the ACLs that each role needs"
    )


def test_egress_reads_the_settings_of_its_results_and_a_user_without_the_right_gets_a_warning(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    results = physical(NAME, RESULTS)
    seen = settings_of(guarded.kafka("egress"), (results,))
    assert seen[results][TOO_OLD] == str(LEASE_MS)
    assert caplog.messages == []
    assert settings_of(guarded.kafka("consumer"), (results,)) == {}
    assert set_stamps(guarded.kafka("consumer"), results, Stamps.LEASE)
    assert (
        caplog.messages
        == [
            f"cannot check topic settings: user '{NAME}-consumer' has no right to "
            f"DescribeConfigs on topic '{results}'; `headrace acls FILE` prints the ACLs that each "
            "role needs"
        ]
        * 2
    )


def test_a_missing_right_to_commit_is_reported(guarded: Guarded) -> None:
    egress = guarded.kafka("egress")
    binding = AclBinding(
        ResourceType.GROUP, f"{NAME}.egress", ResourcePatternType.LITERAL, f"User:{NAME}-egress",
        "*", AclOperation.READ, AclPermissionType.DENY,
    )  # fmt: skip
    admin = guarded.broker.admin()
    give(guarded.broker, [binding])
    try:
        with pytest.raises(BrokerError, match=f"no right to Read on group '{NAME}.egress'"):
            prepare(egress, guarded.file.pipeline, "egress")
    finally:
        for deleted in admin.delete_acls([as_filter(binding)]).values():
            deleted.result(10)


@pytest.mark.parametrize("right", ["Read", "Write"])
def test_an_egress_that_loses_a_right_on_its_lease_ends_with_the_name_of_the_right(
    guarded: Guarded, right: str
) -> None:
    leases = physical(NAME, LEASES)
    binding = AclBinding(
        ResourceType.TOPIC, leases, ResourcePatternType.LITERAL, f"User:{NAME}-egress",
        "*", OPERATIONS[right], AclPermissionType.DENY,
    )  # fmt: skip
    admin = guarded.broker.admin()
    lease = EgressLease(guarded.kafka("egress"), NAME, (0,), "egress-0")
    try:
        lease.acquire()
        give(guarded.broker, [binding])
        with pytest.raises(BrokerError, match=f"no right to {right} on topic '{leases}'"):
            check_for_seconds(lease)
    finally:
        for deleted in admin.delete_acls([as_filter(binding)]).values():
            deleted.result(10)
        lease.end(confirmed=False)


def check_for_seconds(lease: EgressLease) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        lease.check()


def as_filter(binding: AclBinding) -> Any:
    return AclBindingFilter(
        binding.restype, binding.name, binding.resource_pattern_type, binding.principal,
        binding.host, binding.operation, binding.permission_type,
    )  # fmt: skip


def test_a_user_who_may_only_produce_can_neither_read_plans_nor_send_commands(
    guarded: Guarded, command: Any
) -> None:
    mine = {
        "properties": guarded.properties("producer"),
        "password": guarded.broker.passwords[f"{NAME}-producer"],
    }
    refusals = {
        ("pause",): "no right to Write on topic 'headrace.commands'",
        ("status", "--once"): "no right to Write on topic 'headrace.commands'",
    }
    for words, refusal in refusals.items():
        code, said = command(*words, **mine)
        assert (code, refusal in said) == (NO_BROKER, True), said
    kafka = guarded.kafka("producer")
    with pytest.raises(BrokerError, match=r"no right to Read on topic 'headrace\.plans'"):
        retained_plans(kafka, NAME)
    with pytest.raises(BrokerError, match=r"no right to Read on topic 'headrace\.plans'"):
        Tail(kafka, "headrace.plans")
    # The broker refuses too, independently of the client's checks.
    assert sent_to(kafka, "headrace.commands") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert sent_to(kafka, physical(NAME, QUERIES)) is None


def sent_to(kafka: KafkaConfig, topic: str) -> int | None:
    errors: list[int | None] = []
    sender = producer(kafka)
    sender.produce(topic, b"{}", on_delivery=lambda e, _: errors.append(e and e.code()))
    assert sender.flush(20) == 0
    sender.close()
    (error,) = errors
    return error


def test_a_user_who_loses_access_later_ends_the_process_with_an_explanation(
    guarded: Guarded,
) -> None:
    kafka = guarded.kafka("ingress")
    wrong = KafkaConfig(kafka.bootstrap, {**kafka.properties, "sasl.password": "changed"})
    for client in (producer(wrong), consumer(wrong, "any")):
        with pytest.raises(BrokerError, match=f"user '{NAME}-ingress' was not let in"):
            poll_for_seconds(client)
        client.close()


def poll_for_seconds(client: Any) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        client.poll(0.1)
