"""``headrace doctor``: findings that are ok, warnings or errors, with their remedies."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.main import run
from headrace.doctor.findings import (
    BROKER,
    FILE,
    HIDDEN_TOPIC,
    OK,
    WARN,
    WRONG,
    Finding,
    TopicState,
    as_json,
    broker_found,
    clock_found,
    commits_found,
    disk_found,
    election_found,
    extras_found,
    java_found,
    ports_found,
    python_found,
    replication_found,
    rights_found,
    topics_found,
    transactions_found,
    verdict,
)
from streams.kafka.admin.acl_rights import Right
from streams.topics import Topic, topics
from tests.builders import a_pipeline

REQUIREMENTS = (
    "click<8.4,>=8.3",
    'torch>=2.15; extra == "torch"',
    'torchvision>=0.29; extra == "torch"',
    'onnxruntime>=1.31; extra == "onnx"',
    'headrace[torch,onnx]; extra == "postcode"',
    'pillow>=12; extra == "postcode"',
    'ruff>=0.17; extra == "dev"',
)
INSTALL = "pip install 'headrace[{}]' if a pipeline needs it"


def test_extras_are_reported_with_versions_and_those_of_developers_are_not() -> None:
    installed = {"torch": "2.15.0", "pillow": "13.0"}
    assert extras_found(REQUIREMENTS, installed.get) == [
        Finding(
            "extra torch", WARN, "torch 2.15.0; without torchvision", INSTALL.format("torch")
        ),
        Finding("extra onnx", OK, f"not installed; {INSTALL.format('onnx')}"),
        Finding("extra postcode", OK, "pillow 13.0"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "state"),
    [((3, 11, 0), OK), ((3, 13, 9), OK), ((3, 10, 9), WRONG), ((3, 14, 0), WRONG)],
)
def test_python_version_is_checked_against_the_package_requirement(
    version: tuple[int, int, int], state: str
) -> None:
    assert python_found(version, "<3.14,>=3.11").state == state


def test_java_is_wrong_only_where_the_local_broker_is_wanted() -> None:
    assert java_found("", "no Java", is_needed=True).state == WRONG
    assert java_found("", "no Java", is_needed=False).state == OK


@pytest.mark.parametrize(("free", "state"), [(3e9, OK), (1e9, WARN), (1e8, WRONG)])
def test_little_disk_is_warned_of_before_it_is_wrong(free: float, state: str) -> None:
    assert disk_found("/data", int(free)).state == state


@pytest.mark.parametrize(
    ("produce", "local", "state", "says"),
    [
        (13, "", OK, "Apache Kafka 4.1 or newer"),
        (11, "", OK, "protocol of Apache Kafka 3.8"),
        (10, "", OK, "protocol of Apache Kafka 3.7"),
        (9, "", WARN, "protocol of Apache Kafka 2.8 to 3.6"),
        (8, "", WARN, "older than Apache Kafka 2.8"),
        (None, "", WARN, "release unknown"),
        (13, "4.3.1", OK, "the local Apache Kafka 4.3.1"),
    ],
)
def test_broker_is_judged_by_its_protocol_versions(
    produce: int | None, local: str, state: str, says: str
) -> None:
    finding = broker_found("kafka:9092", 3, produce, local)
    assert (finding.state, finding.found.startswith("kafka:9092, 3 nodes, ")) == (state, True)
    assert says in finding.found


@pytest.mark.parametrize(
    ("skew_s", "error_s", "slo_s", "state"),
    [
        (0.001, 0.001, None, OK),
        (-0.2, 0.01, None, WARN),
        (2.0, 0.01, None, WRONG),
        (0.2, 0.19, None, OK),  # not certain enough to blame the clock
        (0.02, 0.001, 0.1, WARN),
        (0.2, 0.001, 0.1, WRONG),
        (0.2, 0.001, 10.0, OK),
    ],
)
def test_certain_clock_skew_is_compared_with_the_slo(
    skew_s: float, error_s: float, slo_s: float | None, state: str
) -> None:
    assert clock_found(skew_s, error_s, slo_s).state == state


def test_a_skew_says_which_way_it_goes() -> None:
    found = "the broker's clock is 200.0 ms behind this machine's, ± 1.0 ms"
    assert clock_found(-0.2, 0.001, None).found == found


PLANS = Topic("headrace.plans", 1, {"cleanup.policy": "compact"})
QUERIES = Topic(
    "p.queries", 4, {"cleanup.policy": "delete", "max.message.bytes": "8388608"}, "input_partitions"
)
RIGHT = {
    "headrace.plans": TopicState(1, {"cleanup.policy": "compact"}, None),
    "p.queries": TopicState(4, {"cleanup.policy": "delete", "max.message.bytes": "9000000"}, None),
}


PORTS = {"control": 9400, "egress-0": 9401, "cpu-0": 9402, "ingress-0": 9403}


def test_ports_for_metrics_are_free_or_named_with_the_role_that_wants_them() -> None:
    where = "ports 9400 to 9403 of 127.0.0.1"
    assert ports_found(PORTS, [], is_up=False) == Finding("metrics", OK, f"{where} are free")
    assert ports_found(PORTS, ["egress-0", "cpu-0"], is_up=False) == Finding(
        "metrics", WRONG, f"{where}: in use by another program: 9401 (egress-0), 9402 (cpu-0)",
        "choose another first port: cluster.metrics_port, or up --metrics-port",
    )  # fmt: skip
    up = ports_found(PORTS, list(PORTS), is_up=True)
    assert up == Finding("metrics", OK, f"{where}; the pipeline is up")


def test_topics_as_they_should_be_are_one_line() -> None:
    assert topics_found((PLANS, QUERIES), RIGHT, "p.yaml") == [
        Finding("topics", OK, "2 of 2 exist with enough partitions")
    ]


def test_more_partitions_than_the_file_names_are_told() -> None:
    there = {**RIGHT, "p.queries": TopicState(12, RIGHT["p.queries"].settings, None)}
    assert topics_found((PLANS, QUERIES), there, "p.yaml") == [
        Finding(
            "topics", OK,
            "2 of 2 exist with enough partitions; p.queries has 12 (4 in the file)",
        )
    ]  # fmt: skip


def test_missing_topics_are_no_fault_but_are_named() -> None:
    assert topics_found((PLANS, QUERIES), {}, "p.yaml") == [
        Finding(
            "topics",
            WARN,
            "missing: headrace.plans, p.queries",
            "`headrace up p.yaml` creates them",
        )
    ]


def test_too_few_partitions_and_settings_that_lose_records_are_wrong() -> None:
    there = {
        "headrace.plans": TopicState(1, {"cleanup.policy": "delete"}, None),
        "p.queries": TopicState(2, {}, None),
    }
    assert topics_found((PLANS, QUERIES), there, "p.yaml") == [
        Finding(
            "topic", WRONG, "cleanup.policy of headrace.plans is delete, compact is needed",
            "kafka-configs --alter --topic headrace.plans --add-config cleanup.policy=compact",
        ),
        Finding(
            "topic", WRONG, "topic 'p.queries' has 2 partitions, 4 are needed",
            "run `kafka-topics --alter --topic p.queries --partitions 4`, or lower "
            "`input_partitions` in the pipeline file",
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"retention.ms": "59000"}, ["p.queries keeps records for 59 s: a reader that is behind"]),
        ({"retention.ms": "60000", "retention.bytes": "-1"}, []),
        ({"retention.ms": "-1"}, []),
        ({"retention.bytes": "9"}, ["p.queries keeps 9 bytes of each partition (retention.bytes)"]),
    ],
)
def test_topics_that_may_delete_unread_records_are_reported(
    settings: dict[str, str], told: list[str]
) -> None:
    wanted = Topic("p.queries", 4, {"retention.ms": "3600000"})
    there = {"p.queries": TopicState(4, settings, None)}
    found = [each for each in topics_found((wanted,), there, "p.yaml") if each.state == WARN]
    assert [each.found[: len(text)] for each, text in zip(found, told, strict=True)] == told
    assert all("kafka-configs --alter --topic p.queries" in each.mend for each in found)


@pytest.mark.parametrize(
    ("kept_ms", "minutes", "faults"),
    [("3600000", "60", 0), ("3600001", "60", 1), ("-1", "9", 1), (None, "60", 0), ("1", None, 0)],
)
def test_records_that_outlive_the_commits_of_a_pipeline_that_is_down_are_reported(
    kept_ms: str | None, minutes: str | None, faults: int
) -> None:
    settings = {} if minutes is None else {"offsets.retention.minutes": minutes}
    kept = {} if kept_ms is None else {"retention.ms": kept_ms}
    found = commits_found("p.queries", TopicState(4, kept, None), settings)
    assert [(each.state, each.what) for each in found] == [(WARN, "commits")] * faults


def test_topics_that_this_user_may_not_see_are_not_called_missing() -> None:
    there: Mapping[str, TopicState] = {**RIGHT, "headrace.plans": HIDDEN_TOPIC}
    assert topics_found((PLANS, QUERIES), there, "p.yaml") == [
        Finding(
            "topics", OK,
            "1 of 2 exist with enough partitions; this user may not describe headrace.plans",
        )
    ]  # fmt: skip


NEEDED = {
    "producer": (Right("Write", "topic", "p.queries"),),
    "control": (Right("Write", "topic", "headrace.plans"),),
    "operator": (Right("Create", "topic", "p.queries"),),
}


def test_roles_are_reported_by_their_broker_permissions() -> None:
    there = {
        "headrace.plans": HIDDEN_TOPIC,
        "p.queries": TopicState(4, {}, frozenset({"WRITE", "DESCRIBE"})),
    }
    assert rights_found(NEEDED, there, "p.yaml") == Finding(
        "permissions", WARN,
        "this user may run producer, operator, but not control, which need for example Write on "
        "headrace.plans",
        "`headrace acls p.yaml` prints the ACLs that each role needs",
    )  # fmt: skip


def test_broker_without_permission_information_is_not_a_fault() -> None:
    assert rights_found(NEEDED, RIGHT, "p.yaml").state == OK


states = st.sampled_from([OK, WARN, WRONG])
whats = st.sampled_from([BROKER, FILE, "clock"])


@given(st.lists(st.builds(Finding, whats, states, st.just("found"))))
def test_the_exit_code_is_0_exactly_where_nothing_is_wrong(findings: list[Finding]) -> None:
    wrong = [finding.what for finding in findings if finding.state == WRONG]
    expected = 4 if BROKER in wrong else 2 if FILE in wrong else 1 if wrong else 0
    assert verdict(findings) == expected
    assert as_json(findings)["ok"] == (not wrong)


def test_other_findings_are_reported_without_a_broker_and_the_exit_code_is_4(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.delenv("HEADRACE_BOOTSTRAP", raising=False)
    assert run(["doctor", "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    whats = [finding["what"] for finding in told["findings"]]
    assert {"python", "headrace", "java", "disk", BROKER} <= {*whats}
    assert told["findings"][-1] == {
        "what": BROKER,
        "state": WRONG,
        "found": "no broker is configured, and the local broker is not running",
        "mend": "start it with `headrace broker start`, or pass --bootstrap",
    }


@pytest.mark.thorough
def test_a_secret_in_the_properties_is_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    properties = f"{tmp_path}/client.properties"
    with open(properties, "w") as file:
        file.write(
            "security.protocol=sasl_plaintext\nsasl.mechanism=PLAIN\n"
            "sasl.username=ann\nsasl.password=open-sesame\n"
        )
    monkeypatch.setenv("HEADRACE_KAFKA_CONFIG", properties)
    assert run(["doctor", "--bootstrap", "127.0.0.1:1"]) == 4
    captured = capsys.readouterr()
    assert "no Kafka broker answers at 127.0.0.1:1" in captured.out
    assert "open-sesame" not in captured.out + captured.err


@pytest.mark.parametrize(
    ("copies", "brokers", "state"), [(1, 1, OK), (3, 3, OK), (1, 3, WARN), (2, 3, OK)]
)
def test_replication_factor_1_is_reported_with_several_brokers(
    copies: int, brokers: int, state: str
) -> None:
    found = replication_found({"p.queries": TopicState(4, {}, None, copies)}, brokers)
    assert (found.what, found.state) == ("replication", state)
    assert ("p.queries" in found.found) == (state == WARN)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}, ""),
        ({"min.insync.replicas": "1"}, "acknowledged by one of 3 brokers"),
        ({"min.insync.replicas": "3"}, "refuse records while one of 3 brokers is down"),
        (
            {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"},
            "a leader without the acknowledged records",
        ),
    ],
)
def test_settings_that_defeat_replication_are_reported(settings: dict[str, str], told: str) -> None:
    found = replication_found({"p.queries": TopicState(4, settings, None, 3)}, 3)
    assert (found.state, bool(found.mend)) == ((WARN, True) if told else (OK, False))
    assert told in found.found
    alone = replication_found({"p.queries": TopicState(4, settings, None, 1)}, 1)
    assert alone.state == OK


@pytest.mark.parametrize(("orderly", "state"), [("true", WARN), ("false", OK), ("", OK)])
def test_single_broker_whose_shutdown_makes_clients_forget_it_is_reported(
    orderly: str, state: str
) -> None:
    found = replication_found({}, 1, {"controlled.shutdown.enable": orderly})
    assert (found.state, "lose its address" in found.found) == (state, state == WARN)
    assert ("controlled.shutdown.enable=false" in found.mend) == (state == WARN)


def test_an_input_topic_that_the_broker_should_stamp_is_reported() -> None:
    wanted = topics(a_pipeline({"read": []}, deadline_clock="broker"))
    queries = next(topic for topic in wanted if topic.name.endswith(".queries"))
    there = {queries.name: TopicState(4, {"message.timestamp.type": "CreateTime"}, None)}
    (found,) = topics_found([queries], there, "p.yaml")
    assert (found.state, found.what) == (WRONG, "topic")
    assert "message.timestamp.type=LogAppendTime" in found.mend
    there = {queries.name: TopicState(4, {"message.timestamp.type": "LogAppendTime"}, None)}
    assert [each.state for each in topics_found([queries], there, "p.yaml")] == [OK]


@pytest.mark.parametrize(
    ("least", "most", "size", "state"),
    [
        ("6000", "1800000", "2147483647", []),
        ("6000", "6000", "2", []),
        ("6001", "1800000", "2147483647", [WRONG]),
        ("1000", "5999", "2147483647", [WRONG]),
        ("6000", "1800000", "1", [WARN]),
    ],
)
def test_brokers_whose_groups_take_no_control_app_are_wrong(
    least: str, most: str, size: str, state: list[str]
) -> None:
    """The control app waited for ever, and doctor found nothing."""
    found = election_found(
        {
            "group.min.session.timeout.ms": least,
            "group.max.session.timeout.ms": most,
            "group.max.size": size,
        }
    )
    assert [each.state for each in found] == state


def test_hidden_settings_of_brokers_are_no_fault() -> None:
    assert [*election_found({}), *transactions_found({}, 3)] == []


@pytest.mark.parametrize(
    ("most_ms", "brokers", "state"),
    [("900000", 3, []), ("10000", 3, []), ("9999", 3, [WRONG]), ("9999", 1, [])],
)
def test_brokers_whose_transactions_are_too_short_for_egress_are_wrong(
    most_ms: str, brokers: int, state: list[str]
) -> None:
    found = transactions_found({"transaction.max.timeout.ms": most_ms}, brokers)
    assert [each.state for each in found] == state
