"""docs/reference/topics.md shows the table of topics that the code makes them from."""

import re
from pathlib import Path

from schemas.effects import work_topic
from schemas.pipeline import MOST_DEADLINE_S, Pipeline, Policy, Task, Variant
from streams.kafka.acl_rights import READ, ROLES, WRITE, rights
from streams.topics import (
    DAY_MS,
    EVERY_TASK,
    HOUR_MS,
    LEASE_MS,
    MAX_RECORD_BYTES,
    MINUTE_MS,
    SHARED,
    TABLE,
    TopicRule,
    physical,
    topics,
)

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "topics.md").read_text()
ROOT, CHILD = (
    Task(name=name, variants=(Variant(task=name, name="v", operator="m:C"),), children=children)
    for name, children in (("first", ("second",)), ("second", ()))
)
PIPELINE = Pipeline(
    name="p",
    slo_s=1.0,
    tasks=(ROOT, CHILD),
    policies=(Policy(name="static"),),
    policy="static",
    sessions=True,
)
UNITS = ((DAY_MS, "day"), (HOUR_MS, "h"), (MINUTE_MS, "min"))


def duration(milliseconds: int) -> str:
    unit, name = next(each for each in UNITS if milliseconds >= each[0])
    count = milliseconds / unit
    return f"{count:g} {name}{'s' if name == 'day' and count != 1 else ''}"


def shown(rule: TopicRule) -> str:
    """The rule as a row of the page."""
    settings = rule.settings
    name = f"headrace.{rule.logical}" if rule.logical in SHARED else f"<p>.{rule.logical}"
    partitions = rule.partitions if isinstance(rule.partitions, int) else f"`{rule.partitions}`"
    cells = (
        f"`{name}`",
        str(partitions),
        settings["cleanup.policy"],
        duration(rule.kept_ms) if rule.kept_ms is not None else "for ever",
        duration(int(settings["segment.ms"])),
        ", ".join(who(rule.logical, WRITE)),
        ", ".join(who(rule.logical, READ)),
    )
    return f"| {' | '.join(cells)} |"


def who(logical: str, operation: str) -> list[str]:
    """The roles with a right on a topic."""
    tasks = (ROOT.name, CHILD.name)
    names = [work_topic(t) for t in tasks] if logical == EVERY_TASK else [logical]
    wanted = {physical(PIPELINE.name, name) for name in names}
    return [
        role
        for role in ROLES
        if any(r.operation == operation and r.name in wanted for r in rights(PIPELINE, role))
    ]


def test_the_page_has_the_table_that_topics_are_made_from() -> None:
    table = re.search(r"^\| topic \|.*?\n\n", PAGE, re.DOTALL | re.MULTILINE)
    assert table
    rows = table[0].strip().splitlines()[2:]
    wanted = [shown(rule) for rule in TABLE]
    assert rows == wanted, "docs/reference/topics.md should say:\n" + "\n".join(wanted)


def test_the_page_tells_the_largest_record() -> None:
    assert f"{MAX_RECORD_BYTES:,} bytes" in PAGE


def test_every_topic_is_made_as_its_rule_says() -> None:
    made = {topic.name: topic for topic in topics(PIPELINE)}
    assert list(made) == [
        *(f"headrace.{name}" for name in ("plans", "reports", "commands", "command-results")),
        *(f"p.{name}" for name in ("queries", "work.first", "work.second", "completions")),
        *(f"p.{name}" for name in ("outputs", "leases", "results", "dead-letters")),
        *(f"p.{name}" for name in ("profile-requests", "profile-results")),
    ]
    assert made["p.work.second"].partitions == CHILD.slots
    assert made["p.outputs"].partitions == PIPELINE.egress_partitions
    assert made["p.results"].settings["message.timestamp.before.max.ms"] == str(LEASE_MS)
    assert made["p.outputs"].settings["message.timestamp.type"] == "LogAppendTime"
    assert made["headrace.command-results"].settings == {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(DAY_MS),
        "segment.ms": "600000",
        "max.message.bytes": str(MAX_RECORD_BYTES),
    }


def test_no_deadline_outlives_the_work_that_it_is_of() -> None:
    (work,) = [rule for rule in TABLE if rule.logical == EVERY_TASK]
    assert work.kept_ms is not None
    assert work.kept_ms > MOST_DEADLINE_S * 1000
