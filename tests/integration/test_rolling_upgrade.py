"""A rolling upgrade under load: processes of two schema releases run side by side, and no query is
lost."""

from pathlib import Path

import pytest

from benchmarks.received_answers import ends, in_time
from benchmarks.rig import Rig
from benchmarks.squares import PIPELINE, right
from headrace.broker.connect import WRITE_RELEASE
from schemas.release import UNDECLARED
from tests.integration.rigs import RATE

pytestmark = [pytest.mark.kafka]


def roll(rig: Rig) -> None:
    """Restart every role in turn, with the current module and variables."""
    for name in rig.roles:
        assert rig.stop(name) == 0
        rig.start(name)
        rig.until(rig.serves, f"{name} to be back")


def upgrade_from(rig: Rig, release: int) -> None:
    """Run every role as of an earlier release, under load."""
    rig.module = "tests.integration.old_release"
    rig.variables = {WRITE_RELEASE: str(release)}
    rig.up()
    rig.offer(RATE)
    rig.until(lambda: any(in_time(a) for a in rig.answers), "an answer of the old release")


def check_answers(rig: Rig) -> None:
    """Check that every query has exactly one answer, and the right one."""
    rig.until(lambda: in_time(rig.answers[-1]), "a good answer")
    rig.settle()
    print(f"{len(rig.roles)} roles rolled: {ends(rig.answers)}")
    rig.answers.check_single()
    assert rig.letters == []
    good = [a for a in rig.answers if in_time(a)]
    assert {a.id: a.origin for a in rig.answers} == {n: q.origin for n, q in rig.asked.items()}
    assert [a.id for a in good if a.result != right(int(rig.asked[a.id].payload))] == []


def newest_released(rig: Rig) -> set[str]:
    """Return the reasons why the batches of the newest answer were released."""
    return {hop.released for path in rig.answers[-1].paths for hop in path}


def test_a_rolling_upgrade_needs_no_setting_and_loses_and_doubles_nothing(
    broker: str, tmp_path: Path
) -> None:
    # New roles write what the old roles can read, as long as an old role reports.
    rig = Rig(broker, tmp_path, PIPELINE)
    try:
        upgrade_from(rig, UNDECLARED)
        rig.module, rig.variables = "headrace", {}
        roll(rig)
        check_answers(rig)
    finally:
        rig.close()


@pytest.mark.slow
def test_a_write_release_limit_serves_releases_that_declare_nothing(
    broker: str, tmp_path: Path
) -> None:
    release = 1
    rig = Rig(broker, tmp_path, PIPELINE)
    try:
        upgrade_from(rig, release)
        assert newest_released(rig) == {""}
        rig.module = "headrace"
        roll(rig)
        rig.until(lambda: in_time(rig.answers[-1]), "a good answer")
        assert newest_released(rig) == {""}
        rig.variables = {}
        roll(rig)
        check_answers(rig)
        assert newest_released(rig) <= {"full", "idle"}
    finally:
        rig.close()
