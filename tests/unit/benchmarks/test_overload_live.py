"""benchmarks/overload_live.py: its runs, and the share of goodput kept in overload."""

from pathlib import Path

import pytest

from benchmarks.overload_live import POLICIES, Load, kept, line, pipeline
from headrace.config.pipeline_file import read_pipeline_file


def load(
    times: float, offered: float, goodput: float, policy: str = "loki", number: int = 0
) -> Load:
    return Load(
        policy=policy, round=number, capacity_qps=100.0, load=times, offered_qps=offered,
        goodput_qps=goodput, ends={"served": 20},
    )  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_has_two_devices_that_share_the_machine(tmp_path: Path, policy: str) -> None:
    file = read_pipeline_file(pipeline(tmp_path / policy, policy))
    assert file.pipeline.policy == policy
    assert dict(file.cluster.devices) == {"cpu": 2}


def test_an_overload_keeps_the_least_share_of_the_best_goodput() -> None:
    loads = [load(1.0, 100.0, 90.0), load(1.5, 150.0, 100.0), load(3.0, 300.0, 55.0)]
    assert kept(loads) == {"loki": pytest.approx(0.55)}


def test_kept_share_never_requires_more_goodput_than_was_offered() -> None:
    assert kept([load(0.5, 50.0, 50.0), load(1.5, 150.0, 100.0)]) == {"loki": 1.0}


def test_kept_share_is_computed_within_a_round_and_per_policy() -> None:
    loads = [
        load(1.0, 100.0, 100.0), load(3.0, 300.0, 80.0),
        load(1.0, 50.0, 50.0, number=1), load(3.0, 150.0, 35.0, number=1),
        load(3.0, 300.0, 10.0, policy="fast"),
    ]  # fmt: skip
    assert kept(loads) == {"loki": pytest.approx(0.7), "fast": 1.0}


def test_a_policy_that_serves_nothing_keeps_nothing() -> None:
    assert kept([load(1.0, 100.0, 80.0), load(3.0, 300.0, 0.0)]) == {"loki": 0.0}


def test_summary_line_shows_how_queries_ended() -> None:
    assert line(load(1.5, 150.0, 100.0)) == ("| `loki` | 100/s | 1.5 | 150/s | 100/s | 20 served |")
