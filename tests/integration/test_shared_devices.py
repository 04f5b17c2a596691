"""One worker process serves a tree of four tasks, over a real broker."""

from pathlib import Path

import pytest

from benchmarks.rig import Rig
from headrace.roles.workers.device_time import SAVED_S

pytestmark = pytest.mark.kafka

OPERATORS = "tests.integration.operators_for_tests"
LEAF = {"slots": 1, "variants": {"v": {"operator": f"{OPERATORS}:Brittle"}}}
PIPELINE = {
    "slo": "5s",
    "egress_partitions": 1,
    "tasks": {
        "split": {
            "slots": 1,
            "children": ["one", "two", "three"],
            "variants": {"v": {"operator": f"{OPERATORS}:ToThree"}},
        },
        "one": LEAF,
        "two": LEAF,
        "three": LEAF,
    },
    "cluster": {"devices": {"cpu": 1}, "tasks_per_device": 4},
}


def test_a_tree_of_four_tasks_is_served_by_one_worker_process(broker: str, tmp_path: Path) -> None:
    rig = Rig(broker, tmp_path, PIPELINE)
    try:
        assert [role.name for role in rig.roles.values() if role.kind == "worker"] == ["cpu-0"]
        rig.up()
        names = [rig.ask(b"%d" % number) for number in range(3)]
        answers = [rig.answer_to(name) for name in names]
        assert [answer.result for answer in answers] == [[b"%d" % n] * 3 for n in range(3)]
        workers = {hop.worker for answer in answers for path in answer.paths for hop in path}
        assert workers == {f"cpu-0-{part}" for part in range(4)}
    finally:
        rig.close()


def test_a_worker_keeps_to_its_share_of_a_core(broker: str, tmp_path: Path) -> None:
    """At a quarter of a core, a second of CPU time takes four seconds. The worker may first use
    what it had saved, and 4 % of its thread's time belongs to no batch."""
    task = {"slots": 1, "variants": {"v": {"operator": f"{OPERATORS}:Burning", "batch": 1}}}
    pipeline = {
        "slo": "60s", "egress_partitions": 1, "tasks": {"one": task},
        "cluster": {"devices": {"cpu": 1}, "share": 0.25},
    }  # fmt: skip
    rig = Rig(broker, tmp_path, pipeline)
    try:
        rig.up()
        names = [rig.ask(b"%d" % number) for number in range(50)]
        results = [rig.answer_to(name).result[0] for name in names]
        used_s, at_s = zip(*sorted(results), strict=True)
        spent_s = used_s[-1] - used_s[0]
        assert spent_s > 0.9
        assert (spent_s - 0.25 * SAVED_S) / (at_s[-1] - at_s[0]) < 0.26
    finally:
        rig.close()
