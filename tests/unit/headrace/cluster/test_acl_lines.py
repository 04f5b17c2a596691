"""The least rights of each role, and the lines that grant them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.main import run
from headrace.cluster.acl_lines import acl_lines, acl_rows, principals
from schemas.pipeline import Labels, Pipeline
from streams.kafka.admin.acl_rights import (
    CREATE,
    DELETE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    ROLES,
    TOPIC,
    TRANSACTION,
    WRITE,
    Right,
    rights,
)
from streams.topics import topics
from tests.control_world import a_pipeline

WORDS = Path(__file__).parents[4] / "examples" / "words" / "pipeline.yaml"


def may(pipeline: Pipeline, role: str, operation: str, resource: str = TOPIC) -> set[str]:
    return {
        right.name
        for right in rights(pipeline, role)
        if (right.operation, right.resource) == (operation, resource)
    }


def test_each_role_writes_and_reads_what_its_node_does_and_no_more() -> None:
    name = a_pipeline().name
    assert {
        role: (may(a_pipeline(), role, WRITE), may(a_pipeline(), role, READ))
        for role in ("ingress", "worker", "egress", "control", "producer", "consumer")
    } == {
        "ingress": (
            {f"{name}.work.locate", f"{name}.outputs", "headrace.reports", f"{name}.dead-letters"},
            {f"{name}.queries", "headrace.plans", f"{name}.completions", "headrace.reports"},
        ),
        "worker": (
            {
                f"{name}.work.read", f"{name}.outputs", f"{name}.completions", "headrace.reports",
                f"{name}.dead-letters",
            },
            {f"{name}.work.locate", f"{name}.work.read", "headrace.plans", "headrace.reports"},
        ),
        "egress": (
            {f"{name}.results", f"{name}.leases", "headrace.reports", f"{name}.dead-letters"},
            {
                f"{name}.outputs", f"{name}.results", f"{name}.leases", "headrace.plans",
                "headrace.reports",
            },
        ),
        "control": (
            {"headrace.plans", "headrace.command-results"},
            {
                "headrace.plans", "headrace.command-results", "headrace.reports",
                "headrace.commands",
            },
        ),
        "producer": ({f"{name}.queries"}, set()),
        "consumer": (set(), {f"{name}.results"}),
    }  # fmt: skip


def test_only_the_operator_makes_topics_and_only_the_purger_deletes_them() -> None:
    pipeline = a_pipeline()
    every = {topic.name for topic in topics(pipeline)}
    makers = {role: may(pipeline, role, CREATE) for role in ROLES if may(pipeline, role, CREATE)}
    assert makers == {"operator": every}
    deleters = {role: may(pipeline, role, DELETE) for role in ROLES if may(pipeline, role, DELETE)}
    assert deleters == {"purger": {t for t in every if not t.startswith("headrace.")}}
    deleted = [r for r in rights(pipeline, "purger") if r.operation == DELETE]
    groups = {right.name for right in deleted if right.resource == GROUP}
    assert groups == {f"{pipeline.name}.{g}" for g in ("ingress", "workers", "egress", "control")}


@pytest.mark.parametrize("clock", ["producer", "broker"])
def test_a_role_sees_the_settings_that_it_checks(clock: str) -> None:
    pipeline = replace(a_pipeline(), deadline_clock=clock)
    stamped = {f"{pipeline.name}.queries"} if clock == "broker" else set()
    seen = {role: may(pipeline, role, DESCRIBE_CONFIGS) for role in ROLES}
    small = {f"{pipeline.name}.leases", f"{pipeline.name}.completions"}  # records of a few bytes
    own = {
        role: {t for t in may(pipeline, role, WRITE) if t.startswith(f"{pipeline.name}.")} - small
        for role in ("ingress", "worker", "egress")
    }
    expected = own | {"ingress": own["ingress"] | stamped}
    assert {role: topics for role, topics in seen.items() if topics} == expected


def test_a_pipeline_called_headrace_does_not_give_away_the_control_topics() -> None:
    deleted = may(replace(a_pipeline(), name="headrace"), "purger", DELETE)
    assert "headrace.queries" in deleted
    assert not deleted & {"headrace.plans", "headrace.reports", "headrace.commands"}


@given(st.sampled_from(sorted(ROLES)), st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True))
def test_every_right_is_on_a_topic_of_the_table_or_belongs_to_the_pipeline(
    role: str, name: str
) -> None:
    pipeline = replace(a_pipeline(), name=name)
    every = {topic.name for topic in topics(pipeline)}
    found = rights(pipeline, role)
    assert len(set(found)) == len(found)
    for right in found:
        if right.resource == TOPIC:
            assert (right.name in every, right.prefixed) == (True, False)
        else:
            assert right.resource in (GROUP, TRANSACTION)
            assert right.name.startswith(f"{name}.")


def test_a_line_gives_one_principal_the_same_operations_on_several_resources() -> None:
    lines = acl_lines(a_pipeline(), principals(a_pipeline(), "team a/"))
    name = a_pipeline().name
    start = (
        'kafka-acls --bootstrap-server "$BOOTSTRAP" --command-config "$ADMIN_PROPERTIES" --add '
        "--allow-principal 'User:team a/consumer' "
    )
    at = lines.index("# consumer")
    assert lines[at : at + 3] == [
        "# consumer",
        f"{start}--operation Read --topic {name}.results",
        f"{start}--operation Read --group {name}.consumer --resource-pattern-type prefixed",
    ]


def test_table_rows_match_the_rights() -> None:
    tasks = tuple(
        replace(t, dispatch="fcfs" if at else "") for at, t in enumerate(a_pipeline().tasks)
    )
    pipeline = replace(a_pipeline(), sessions=True, labels=Labels(), tasks=tasks)
    rows = acl_rows(pipeline, principals(pipeline, None))
    assert {row["principal"] for row in rows} == {f"User:{pipeline.name}-{r}" for r in ROLES}
    for role in ROLES:
        assert tuple(
            Right(row["operation"], row["resource"], row["name"], row["pattern"] == "prefixed")
            for row in rows
            if row["role"] == role
        ) == rights(pipeline, role)


def test_a_pipeline_has_only_the_roles_that_it_runs() -> None:
    pipeline = a_pipeline()
    assert set(principals(pipeline, None)) == set(ROLES) - {"profiler", "scorer", "dispatcher"}
    assert "# profiler" not in acl_lines(pipeline, principals(pipeline, None))


def test_the_command_prints_lines_for_a_shell_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["acls", str(WORDS), "--principal-prefix", "ml-"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line} == {"#", "kafka-acls"}
    assert any("User:ml-ingress" in line for line in lines)
    assert run(["acls", str(WORDS), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert row == {
        "role": "ingress", "principal": "User:words-ingress", "operation": "Write",
        "resource": "topic", "name": "words.work.split", "pattern": "literal",
    }  # fmt: skip
