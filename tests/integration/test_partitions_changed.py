"""Partitions of a pipeline under ``headrace up`` change while queries arrive."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.received_answers import ends
from benchmarks.squares import PIPELINE
from schemas.effects import OUTPUTS, QUERIES
from schemas.records import ANSWERED
from tests.integration.rigs import check_one_answer_each
from tests.integration.supervised import WITHIN_S, Supervised, supervised

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RATE = 20.0
BEFORE, AFTER = 2, 4  # partitions of the outputs topic
CLUSTER = {"devices": {"cpu": 3}, "ingress": 1, "egress": 2}


@pytest.fixture
def run(broker: str, tmp_path: Path) -> Iterator[Supervised]:
    description = {**PIPELINE, "slo": "30s", "egress_partitions": BEFORE, "cluster": CLUSTER}
    with supervised(broker, tmp_path, description, RATE) as run:
        yield run


def test_queries_in_partitions_that_were_added_under_traffic_are_answered_once(
    run: Supervised,
) -> None:
    rig = run.rig
    rig.add_partitions(QUERIES, 6)

    def answered() -> set[int]:
        return {a.origin.partition for a in rig.answers if a.outcome == ANSWERED}

    rig.until(lambda: answered() == set(range(6)), "answers of every partition", WITHIN_S)
    assert "has 6 partitions and had 4 when this role began" in run.role_log("ingress-0")
    check_one_answer_each(rig)
    added = [a for a in rig.answers if a.origin.partition >= 4]
    print(f"of the added partitions: {ends(added)}")


def test_egress_partitions_change_between_two_starts_under_traffic(run: Supervised) -> None:
    rig = run.rig
    for count in (AFTER, BEFORE):
        run.types("down")
        if count == AFTER:
            rig.add_partitions(OUTPUTS, AFTER)
        run.edit(count)
        run.types("up", "--detach")
        rig.pass_time(2)
    check_one_answer_each(rig)
    print(f"of all queries: {ends(rig.answers)}")


def test_egress_partitions_change_role_by_role_under_traffic(run: Supervised) -> None:
    rig = run.rig
    rig.add_partitions(OUTPUTS, AFTER)
    for count in (AFTER, BEFORE):
        run.edit(count)
        for role in ("egress-0", "cpu-0", "ingress-0", "egress-1", "cpu-1", "cpu-2"):
            run.restart(role)
    rig.pass_time(2)
    check_one_answer_each(rig)
    print(f"of all queries: {ends(rig.answers)}")


def test_egress_partitions_change_while_egress_is_behind(run: Supervised) -> None:
    """Ingress uses the other partitions only after egress has closed all work sent before."""
    rig = run.rig
    rig.add_partitions(OUTPUTS, AFTER)
    for count in (AFTER, BEFORE):
        for role in ("egress-0", "egress-1"):
            run.signal(role, signal.SIGSTOP)
        rig.pass_time(1)
        run.edit(count)
        killed_s = run.signal("ingress-0", signal.SIGKILL)
        waits = f"from before egress_partitions became {count}"
        rig.until(lambda waits=waits: waits in run.role_log("ingress-0"), waits)
        for role in ("egress-0", "egress-1", "cpu-0", "cpu-1", "cpu-2"):
            run.restart(role)
        run.back("ingress-0", killed_s)
        rig.pass_time(2)
    check_one_answer_each(rig)
    print(f"of all queries: {ends(rig.answers)}")
