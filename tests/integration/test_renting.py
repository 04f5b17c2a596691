"""`headrace up` rents and releases devices according to the control app's plans."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.client.topic_clients import PlanTail, decoded
from headrace.cluster.run_state import read_state
from schemas.records import Plan
from streams.kafka.kafka_config import KafkaConfig
from tests.integration.brought_up import at_home, brought_up
from tests.typed_files import RANK, a_typed_file

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

# By the fluid bound a slow device carries 11/s, a fast one 48/s; queries of size 1 take 20 ms.
TEXT = (
    RANK.replace("comm: 0ms\n", "")
    .replace("slo: 100ms", "slo: 2s")
    .replace("  budget: 1.2", "  budget: 1.2\n  scale: supervisor\n  start: {slow: 1}")
    .replace("price: 0.5}", "price: 0.5, boot: 2s}")
)
PRICES = {"gpu": 0.5, "slow": 0.2}


def mixes(broker: str) -> list[dict[str, int]]:
    """Return the mixes of the pipeline's plans, oldest first."""
    tail = PlanTail(KafkaConfig(broker))
    try:
        plans = [each for each in map(decoded, tail.take(0)) if isinstance(each, Plan)]
    finally:
        tail.close()
    ours = sorted((p for p in plans if p.pipeline == "rank"), key=lambda p: p.epoch)
    return [dict(plan.mix) for plan in ours]


def test_load_rents_a_device_that_serves_and_nothing_is_lost(tmp_path: Path, broker: str) -> None:
    path = a_typed_file(tmp_path, TEXT)
    payload = tmp_path / "payload"
    payload.write_bytes(b"x")
    env = at_home(tmp_path, broker)
    with brought_up(path, env):
        done = subprocess.run(
            [
                sys.executable, "-m", "headrace", "load", str(path), "--rate", "30", "--seconds",
                "25", "--input", str(payload), "--json",
            ],
            check=True, capture_output=True, text=True, env=env,
        )  # fmt: skip
        state = read_state(tmp_path / "run" / "rank")
        assert state is not None
        workers = [each.name for each in state.roles if each.name.startswith(("gpu", "slow"))]
        planned = mixes(broker)
    row = json.loads(done.stdout)
    assert row["lost"] == 0, done.stderr
    assert {"gpu": 0, "slow": 1} in planned
    assert planned[-1] == {"gpu": 1, "slow": 0}
    assert workers == ["gpu-0"]
    assert all(sum(PRICES[t] * n for t, n in mix.items()) <= 1.2 + 1e-9 for mix in planned)
