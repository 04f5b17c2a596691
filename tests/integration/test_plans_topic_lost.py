"""The plans topic is deleted under a running pipeline and recreated without its plans."""

from pathlib import Path

import pytest
from confluent_kafka import TopicCollection

from benchmarks.squares import PIPELINE
from headrace.broker import local_broker as local
from schemas.effects import PLANS
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import admin
from streams.topics import physical, topics
from tests.integration.rigs import check_one_answer_each
from tests.integration.supervised import WITHIN_S, supervised

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_nodes_follow_a_newer_plan_and_every_query_has_its_answer(tmp_path: Path) -> None:
    """This test has a broker of its own, since all pipelines of a broker share the topic."""
    description = {**PIPELINE, "slo": "30s"}
    with (
        local.borrow(tmp_path / "broker") as broker,
        supervised(broker.bootstrap, tmp_path, description, 20.0) as run,
    ):
        rig, topic = run.rig, physical("", PLANS)
        before = rig.plan.epoch
        client = admin(rig.kafka)
        client.delete_topics([topic])[topic].result(WITHIN_S)

        def gone() -> bool:
            found = client.describe_topics(TopicCollection([topic]))[topic]
            return found.exception(WITHIN_S) is not None

        rig.until(gone, "the topic to be deleted", WITHIN_S)
        ensure_topics(rig.kafka, topics(rig.file.pipeline))
        run.restart("cpu-0")
        rig.until(
            lambda: all(rig.reports[node].epoch > before for node in rig.reports),
            "every node to follow a newer plan",
            WITHIN_S,
        )
        rig.pass_time(2)
        check_one_answer_each(rig)
