"""The demo of sessions runs as a user runs it, which takes minutes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(900)]

SECONDS = 90


def test_six_sessions_go_through_three_changes_and_no_query_is_lost(tmp_path: Path) -> None:
    demo = [sys.executable, "-m", "headrace", "demo", "--sessions", "--seconds", str(SECONDS)]
    done = subprocess.run(
        [*demo, "--json"], env={**os.environ, "TMPDIR": str(tmp_path)}, text=True, check=False,
        capture_output=True, timeout=880,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    row = json.loads(done.stdout)
    assert row["lost"] == 0
    assert [each["session"] for each in row["changes"]] == ["north", "south", "far"]
    assert len(row["sessions"]) == 6
    assert row["served"] >= 1, done.stderr[-4000:]  # on a busy machine not all of them
    assert list(tmp_path.iterdir()) == []  # the demo leaves nothing behind
