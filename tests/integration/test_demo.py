"""`headrace demo` on a broker of its own: it reports, and nothing of it stays."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from headrace.supervisor import environment

pytestmark = [pytest.mark.kafka, pytest.mark.alone, pytest.mark.timeout(300)]

WORDS = Path(__file__).parents[1] / "pipelines" / "lines" / "pipeline.yaml"


def started(folder: Path, seconds: str) -> "subprocess.Popen[str]":
    """A demo whose temporary files, and so its broker's command line, lie in ``folder``.

    It hears SIGINT also where these tests were started behind a shell's ``&``, which ignores it.
    """
    command = [sys.executable, "-m", "headrace", "demo", str(WORDS), "--seconds", seconds, "--json"]
    env = environment(os.environ, None) | {"TMPDIR": str(folder)}
    env.pop("HEADRACE_BOOTSTRAP", None)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def left_of(folder: Path) -> dict[int, str]:
    """Command lines, by process number, of what was started with the folder for its files."""
    return {
        process.pid: " ".join(process.info["cmdline"] or [])
        for process in psutil.process_iter(["cmdline", "environ"])
        if (process.info["environ"] or {}).get("TMPDIR") == str(folder)
    }


def test_a_demo_accounts_for_every_query_and_leaves_nothing(tmp_path: Path) -> None:
    with started(tmp_path, "6") as demo:
        out, err = demo.communicate()
    assert demo.returncode == 0, err
    row = json.loads(out)
    outcomes = ("answered", "late", "dropped", "failed", "refused", "lost")
    assert row["queries"] == sum(row[name] for name in outcomes) > 50
    assert row["lost"] == 0
    assert row["warm_up_queries_excluded"] == 60
    assert [phase["policy"] for phase in row["phases"]] == ["accurate", "fast"]
    assert row["policy_change"]["epoch"] is not None
    assert set(row["variant_shares"]["shout"]) == {"careful", "hasty"}
    assert sum(step["share"] for step in row["time_spent"]) == pytest.approx(1.0, abs=1e-3)
    assert left_of(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGTERM, "starting a broker"), (signal.SIGINT, "applying policy")],
)
def test_a_demo_that_is_ended_early_leaves_nothing(
    tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    with started(tmp_path, "10") as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if moment in line:
                break
        demo.send_signal(number)
        demo.communicate()
    assert demo.returncode == 128 + number
    assert left_of(tmp_path) == {}


def test_a_demo_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    with started(tmp_path, "20") as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "applying policy" in line:
                break
        everyone = [psutil.Process(pid) for pid in left_of(tmp_path) if pid != demo.pid]
        demo.kill()
    assert len(everyone) >= 7  # keeper, broker, control, ingress, two workers, egress, planners
    assert psutil.wait_procs(everyone, timeout=60)[1] == []
