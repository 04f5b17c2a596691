"""Topics are created from the table that docs/reference/topics.md shows."""

from pathlib import Path

from schemas.pipeline import MOST_DEADLINE_S, Labels, Pipeline, Policy, Task, Variant
from streams.topics import (
    DAY_MS,
    EVERY_TASK,
    LEASE_MS,
    MAX_RECORD_BYTES,
    TABLE,
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
    labels=Labels(),
)


def test_the_page_tells_the_largest_record() -> None:
    assert f"{MAX_RECORD_BYTES:,} bytes" in PAGE


def test_every_topic_is_made_as_its_rule_says() -> None:
    made = {topic.name: topic for topic in topics(PIPELINE)}
    assert list(made) == [
        *(f"headrace.{name}" for name in ("plans", "reports", "commands", "command-results")),
        *(f"p.{name}" for name in ("queries", "work.first", "work.second", "completions")),
        *(f"p.{name}" for name in ("outputs", "leases", "results", "dead-letters")),
        *(f"p.{name}" for name in ("labels", "shadows", "accuracy")),
        *(f"p.{name}" for name in ("sessions", "profile-requests", "profile-results")),
    ]
    assert made["p.work.second"].partitions == CHILD.slots
    assert made["p.outputs"].partitions == PIPELINE.egress_partitions
    assert made["p.queries"].partitions == PIPELINE.input_partitions
    assert made["p.results"].partitions == PIPELINE.results_partitions
    assert made["p.results"].settings["message.timestamp.before.max.ms"] == str(LEASE_MS)
    assert made["p.outputs"].settings["message.timestamp.type"] == "LogAppendTime"
    assert made["headrace.command-results"].settings == {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(DAY_MS),
        "segment.ms": "600000",
        "max.message.bytes": str(MAX_RECORD_BYTES),
    }


def test_no_deadline_exceeds_the_retention_of_its_work() -> None:
    (work,) = [rule for rule in TABLE if rule.logical == EVERY_TASK]
    assert work.kept_ms is not None
    assert work.kept_ms > MOST_DEADLINE_S * 1000
