"""The live study of Kairos: which policy orders count as wrong."""

from pathlib import Path

from benchmarks.kairos_live import Row, mix_of, wrong
from headrace.config.pipeline_file import read_pipeline_file
from tests.typed_files import a_typed_file


def a_row(policy: str, simulated: float, live: float, lost: int = 0, model: str = "rm2") -> Row:
    return Row(
        model=model, policy=policy, mix={"gpu": 1}, rate_qps=10.0, dilate=2.0, queries=100,
        simulated_attainment=simulated, live_attainment=live, simulated_p99_ms=None,
        live_p99_ms=None, lost=lost, behind_ms=0.0, host=0.5,
    )  # fmt: skip


def test_reversed_policy_order_is_wrong_unless_the_policies_are_equal() -> None:
    first, close, last = a_row("a", 0.99, 0.7), a_row("b", 0.98, 0.72), a_row("c", 0.6, 0.71)
    assert wrong([first, close, last]) == ["rm2: c is ahead of a live"]
    assert wrong([first, a_row("c", 0.6, 0.71, model="wnd")]) == []


def test_a_lost_query_is_wrong() -> None:
    assert wrong([a_row("a", 0.9, 0.9, lost=2)]) == ["rm2, a: 2 lost"]


def test_the_mix_is_the_first_of_the_ranking_without_zeros(tmp_path: Path) -> None:
    mix = mix_of(read_pipeline_file(a_typed_file(tmp_path)))
    assert mix == {"gpu": 4, "slow": 2}
