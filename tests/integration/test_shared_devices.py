"""A tree of four tasks on one worker process, over a real broker."""

from pathlib import Path

import pytest

from benchmarks.rig import Rig

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
