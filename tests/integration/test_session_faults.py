"""benchmarks/session_faults on a real broker: planner and profilers are killed in every phase."""

from pathlib import Path

import pytest

from benchmarks.session_faults.__main__ import EVERY, measure, text

pytestmark = [
    pytest.mark.kafka, pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(3600),
]  # fmt: skip


def test_sessions_survive_kills_of_planner_and_profilers_in_every_phase(tmp_path: Path) -> None:
    found = measure(tmp_path, bounded=False)
    print(text(found))
    assert found.broken == []
    assert [(each.phase, each.fault) for each in found.met] == [*EVERY]
