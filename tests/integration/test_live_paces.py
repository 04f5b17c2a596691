"""On a real broker, a session leaves workers that have become slower than their profile."""

import sys
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from benchmarks.session_faults.session_phases import samples_of
from benchmarks.session_faults.session_pipeline import DESCRIPTION, HARD, slow_down
from benchmarks.session_faults.session_rig import SessionRig
from schemas.records import Session
from tests.integration.rigs import check_one_answer_each

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

RATE = 16.0  # queries/s, half of them of each session
SLOWER = 2.0
# Three votes, which hard letters need, take 60 ms; 4 ms before it, 8 ms between processes.
OBJECTIVES = {"tight": "100ms", "calm": "3s"}


@pytest.fixture
def rig(broker: str, tmp_path: Path) -> Iterator[SessionRig]:
    """Run the pipeline with another, dearer tier for the second task."""
    file = deepcopy(DESCRIPTION)
    file["tasks"]["read"]["tiers"] = ["cloud", "store"]
    file["cluster"]["tiers"]["store"] = {"speed": 1, "count": 1, "price": 0.4}
    for link in ("depot>store", "cloud>store"):  # sessions' queries come from the cloud
        file["cluster"]["links"][link] = file["cluster"]["links"]["depot>cloud"]
    rig = SessionRig(broker, tmp_path, file)
    try:
        rig.up()
        yield rig
    finally:
        rig.close()


def opened(rig: SessionRig) -> None:
    """Open the sessions on equal samples, and send queries once both serve."""
    samples = samples_of(HARD)
    for name, slo in OBJECTIVES.items():
        found = rig.command("open-session", session=name, samples=samples, slo=slo)
        assert found.ok, found.message
    rig.until(lambda: all(map(rig.served, OBJECTIVES)), "both sessions to serve")
    rig.streams += OBJECTIVES
    rig.offer(RATE)
    rig.pass_time(1.0)


def tier(session: Session) -> str:
    """Return the tier of a session's second task by its plan in force; "": it has none."""
    return session.plans[session.chosen].tiers["read"] if session.chosen >= 0 else ""


def test_a_session_leaves_slower_workers_without_labels_and_without_profiling(
    rig: SessionRig,
) -> None:
    opened(rig)
    before = {name: rig.sessions[name] for name in OBJECTIVES}
    assert {tier(each) for each in before.values()} == {"cloud"}
    profiled, slower_s = len(rig.profiles), time.time()
    slow_down(rig.folder, {rig.pids[name]: SLOWER for name in ("cloud-0", "cloud-1")})

    rig.until(
        lambda: rig.served("tight") and tier(rig.sessions["tight"]) == "store", "another tier"
    )
    rig.pass_time(1.0)

    tight, calm = rig.sessions["tight"], rig.sessions["calm"]
    print(
        f"left after {tight.changed_s - slower_s:.2f} s, moves {tight.replans}: {tight.cause}; "
        f"search {tight.search_s:.2f} s, switch-over {tight.switch_s:.2f} s",
        file=sys.stderr,
    )
    assert tight.cause.startswith("its operators take longer than planned: ")
    assert tight.stopped == "priced"
    assert len(rig.profiles) == profiled
    assert (calm.number, calm.replans, tier(calm)) == (before["calm"].number, 0, "cloud")
    check_one_answer_each(rig)
