"""A rolling upgrade under load: processes of two schema releases side by side, nothing lost.

Every role is restarted twice in turn, the second time with no change but of its records.
"""

from pathlib import Path

import pytest

from benchmarks.rig import Rig, ends, in_time
from benchmarks.squares import PIPELINE, right
from headrace.broker.connect import WRITE_RELEASE
from tests.integration.old_release import RELEASE
from tests.integration.test_faults import RATE

pytestmark = [pytest.mark.kafka, pytest.mark.alone]


def roll(rig: Rig) -> None:
    """Every role restarted in turn, in the way that is set now."""
    for name in rig.roles:
        assert rig.stop(name) == 0
        rig.start(name)
        rig.until(rig.serves, f"{name} to be back")


def newest_released(rig: Rig) -> set[str]:
    """Why the batches of the newest answer were released, as it tells."""
    return {hop.released for path in rig.answers[-1].paths for hop in path}


def test_old_and_new_schemas_side_by_side_lose_and_double_nothing(
    broker: str, tmp_path: Path
) -> None:
    rig = Rig(broker, tmp_path, PIPELINE)
    try:
        rig.module = "tests.integration.old_release"
        rig.up()
        rig.offer(RATE)
        rig.until(lambda: any(in_time(a) for a in rig.answers), "an answer of the old release")
        assert newest_released(rig) == {""}
        rig.module, rig.variables = "headrace", {WRITE_RELEASE: str(RELEASE)}
        roll(rig)
        rig.until(lambda: in_time(rig.answers[-1]), "a good answer")
        assert newest_released(rig) == {""}
        rig.variables = {}
        roll(rig)
        rig.until(lambda: in_time(rig.answers[-1]), "a good answer")
        assert newest_released(rig) <= {"full", "idle"}
        rig.settle()
        print(f"two rolls of {len(rig.roles)} roles: {ends(rig.answers)}")
        assert rig.answered_twice() == []
        assert rig.letters == []
        good = [a for a in rig.answers if in_time(a)]
        assert {a.id: a.origin for a in rig.answers} == {n: q.origin for n, q in rig.asked.items()}
        assert [a.id for a in good if a.result != right(int(rig.asked[a.id].payload))] == []
    finally:
        rig.close()
