"""`headrace up` rents and releases devices according to the control app's plans."""

from pathlib import Path

import pytest

from benchmarks.rig import Rig
from tests.integration.brought_up import rig_brought_up, roles_of
from tests.integration.rigs import check_one_answer_each
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
RATE = 30.0
BURST = 150.0  # a fast device serves 100/s of size 1, a slow one 50/s
WITHIN_S = 120.0  # 10 s on an idle machine


def rented(rig: Rig) -> list[str]:
    """Return the running workers."""
    return [name for name in roles_of(rig) if name.startswith((*PRICES,))]


def served_last(rig: Rig) -> list[str]:
    """Return the workers of the newest answer."""
    return [hop.worker for answer in rig.answers[-1:] for path in answer.paths for hop in path]


def test_load_rents_a_device_that_serves_and_nothing_is_lost(tmp_path: Path, broker: str) -> None:
    with rig_brought_up(broker, tmp_path, a_typed_file(tmp_path, TEXT)) as rig:
        assert "slow-0" in rented(rig)
        assert not any(name.startswith("gpu") for name in rented(rig))
        rig.offer(RATE)
        rig.until(lambda: rented(rig) == ["gpu-0"], "the fast device alone", WITHIN_S)
        rig.until(lambda: served_last(rig) == ["gpu-0"], "its answers", WITHIN_S)
        check_one_answer_each(rig)
    planned = [dict(plan.mix) for plan in sorted(rig.plans, key=lambda plan: plan.epoch)]
    assert {"gpu": 0, "slow": 1} in planned
    assert planned[-1] == {"gpu": 1, "slow": 0}
    assert all(sum(PRICES[t] * n for t, n in mix.items()) <= 1.2 + 1e-9 for mix in planned)


def test_a_mix_that_shrinks_while_queries_wait_loses_nothing(tmp_path: Path, broker: str) -> None:
    """The budget falls to one slow device as three times what it serves arrives."""
    with rig_brought_up(broker, tmp_path, a_typed_file(tmp_path, TEXT)) as rig:
        rig.offer(BURST)
        rig.until(lambda: len(rented(rig)) > 1, "more than one device", WITHIN_S)
        assert rig.command("set-budget", budget="0.2").ok
        rig.until(lambda: rented(rig) == ["slow-0"], "the slow device alone", WITHIN_S)
        rig.pass_time(1)
        assert len(rig.asked) > len(rig.answers)
        check_one_answer_each(rig)
