"""Queries of unlike size on unlike devices, over a real Kafka."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cluster.run_state import read_state
from headrace.cluster.supervisor import environment
from tests.integration.brought_up import brought_up
from tests.typed_files import RANK, a_typed_file

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TEXT = (
    RANK.replace("comm: 0ms\n", "")
    .replace("slo: 100ms", "slo: 2s")
    .replace("  budget: 1.2", "  budget: 1.2\n  start: {gpu: 1, slow: 2}")
)


def test_queries_are_dispatched_and_none_is_lost_when_ingress_is_killed(
    tmp_path: Path, broker: str
) -> None:
    path = a_typed_file(tmp_path, TEXT)
    payload = tmp_path / "payload"
    payload.write_bytes(b"x")
    env = environment(os.environ, None) | {
        "HEADRACE_HOME": str(tmp_path), "HEADRACE_BOOTSTRAP": broker,
    }  # fmt: skip
    with brought_up(path, env):
        load = subprocess.Popen(
            [
                sys.executable, "-m", "headrace", "load", str(path), "--rate", "15", "--seconds",
                "8", "--input", str(payload), "--json",
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip
        assert load.stderr is not None
        load.stderr.readline()  # the first word of what was sent
        state = read_state(tmp_path / "run" / "rank")
        assert state is not None
        ingress = next(role for role in state.roles if role.name == "ingress-0")
        os.kill(ingress.pid, signal.SIGKILL)
        out, err = load.communicate(timeout=120)
    row = json.loads(out)
    assert row["lost"] == 0, err
    assert row["answered"] > 0.5 * row["queries"]
