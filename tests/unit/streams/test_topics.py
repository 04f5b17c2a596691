"""The partitions of topics, and what to do about too few."""

from dataclasses import replace

import pytest

from schemas.pipeline import Pipeline
from streams.topics import Topic, physical, too_few, topics
from tests.builders import a_pipeline

DISPATCHED = replace(a_pipeline({"read": ()}), ingress=3)


def counts(pipeline: Pipeline) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in topics(pipeline)}


def test_the_file_sets_the_partitions_of_queries_and_answers() -> None:
    default = counts(a_pipeline())
    assert (default["p.queries"], default["p.results"]) == (4, 4)
    chosen = counts(a_pipeline(input_partitions=12, results_partitions=1))
    assert chosen == {**default, "p.queries": 12, "p.results": 1}


@pytest.mark.parametrize(
    ("logical", "remedy"),
    [
        ("queries", ", or lower `input_partitions` in the pipeline file"),
        ("results", ", or lower `results_partitions` in the pipeline file"),
        ("outputs", ", or lower `egress_partitions` in the pipeline file"),
        ("work.read", ", or lower the task's `slots` in the pipeline file"),
        (
            "completions",
            ", or lower `cluster.ingress` or `cluster.dispatchers` in the pipeline file",
        ),
        ("leases", ""),
    ],
)
def test_a_topic_with_too_few_partitions_names_the_command_and_the_key(
    logical: str, remedy: str
) -> None:
    name = physical("p", logical)
    (topic,) = [each for each in topics(DISPATCHED) if each.name == name]
    command = f"run `kafka-topics --alter --topic {name} --partitions {topic.partitions}`"
    assert too_few(topic, 0) == (
        f"topic '{name}' has 0 partitions, {topic.partitions} are needed", command + remedy,
    )  # fmt: skip


def test_one_partition_is_no_plural() -> None:
    assert too_few(Topic("t", 2), 1)[0] == "topic 't' has 1 partition, 2 are needed"
