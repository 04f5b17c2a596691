"""A demo that is interrupted or killed also cleans up."""

import signal
from pathlib import Path

import psutil
import pytest

from tests.integration.demos import left_of, started

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGTERM, "starting a broker"), (signal.SIGINT, "policy apply")],
)
def test_a_demo_that_is_ended_early_leaves_nothing(
    tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    with started(tmp_path, "4") as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if moment in line:
                break
        demo.send_signal(number)
        demo.communicate()
    assert demo.returncode == 128 + number
    assert left_of(tmp_path) == {}


def test_a_demo_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    with started(tmp_path, "10") as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "$ headrace load" in line:
                break
        everyone = [psutil.Process(pid) for pid in left_of(tmp_path) if pid != demo.pid]
        demo.kill()
    assert len(everyone) >= 7  # watchdog, broker, control, ingress, two workers, egress, planners
    assert psutil.wait_procs(everyone, timeout=60)[1] == []
