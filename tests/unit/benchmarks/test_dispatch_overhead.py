"""Dispatcher overhead: three ways to serve the same stages, and figures per round."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.dispatch_overhead import (
    CASES,
    INGRESS,
    INNER,
    SLOTS,
    Figures,
    order,
    report,
    summary,
    written,
)
from headrace.arrivals.arrival_processes import Renewal
from headrace.config.pipeline_file import PipelineFile
from headrace.config.topology import file_roles
from headrace.roles.dispatching import dispatches
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from schemas.effects import Effect, Event, Send
from schemas.records import Completion

ROUNDS = [
    {SLOTS: Figures(2.0, 9.0, 3.0, 0), INGRESS: Figures(2.1, 9.0, 3.0, 0),
     INNER: Figures(3.0, 9.0, 4.0, 0)},
    {SLOTS: Figures(4.0, 9.0, 3.0, 0), INGRESS: Figures(4.4, 9.0, 3.0, 1),
     INNER: Figures(5.2, 9.0, 4.0, 0)},
    {SLOTS: Figures(3.0, 9.0, 3.0, 0), INGRESS: Figures(2.9, 9.0, 3.0, 0),
     INNER: Figures(3.6, 9.0, 4.0, 0)},
]  # fmt: skip


class Dispatched:
    """An observer that counts the items whose end a worker reports to a dispatcher."""

    def __init__(self) -> None:
        self.items = 0

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self.items += sum(type(e) is Send and type(e.record) is Completion for e in effects)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, PipelineFile]:
    return {case: written(tmp_path, case) for case in CASES}


def test_cases_differ_in_the_sender_to_the_workers(files: dict[str, PipelineFile]) -> None:
    assert {case: dispatches(file) for case, file in files.items()} == {
        SLOTS: False, INGRESS: True, INNER: False
    }  # fmt: skip
    names = {case: {role.name for role in file_roles(file)} for case, file in files.items()}
    assert names[INNER] - names[SLOTS] == {"dispatcher-b-0"}
    assert names[INGRESS] == names[SLOTS]


def test_only_a_dispatcher_of_its_own_adds_a_hop(files: dict[str, PipelineFile]) -> None:
    p50_ms = {}
    for case, file in files.items():
        run = Run(file=file, policy=file.pipeline.policy, seed=0, arrivals=Renewal(50.0, 8.0))
        dispatched = Dispatched()
        played = simulated(run, lambda sent: None, [dispatched])
        assert played.metrics.counts["answered"] == played.queries
        assert dispatched.items == (0 if case == SLOTS else played.queries)
        p50_ms[case] = played.metrics.latency_ms(0.5)
    assert p50_ms[INGRESS] == pytest.approx(p50_ms[SLOTS], abs=0.2)
    assert p50_ms[INNER] > p50_ms[SLOTS] + 0.4


def test_cases_run_backwards_in_every_second_round() -> None:
    assert order(0) == CASES
    assert order(1) == (INNER, INGRESS, SLOTS)


def test_growth_and_ratio_are_taken_within_a_round() -> None:
    flat = summary(ROUNDS)
    assert flat["p50_growth_ms_ingress"] == pytest.approx(0.1)
    assert flat["p50_growth_ms_ingress_min"] == pytest.approx(-0.1)
    assert flat["p50_growth_ms_inner"] == pytest.approx(1.0)
    assert flat["p50_growth_ms_inner_max"] == pytest.approx(1.2)
    assert flat["p50_ratio_inner"] == pytest.approx(1.3)
    assert flat["unanswered_ingress"] == 1


def test_report_shows_growth_spread_and_required_value() -> None:
    told = report(summary(ROUNDS))
    assert "p50 grows by 0.10 (-0.10 to 0.40) ms (at most 0.2), ratio 1.05 (0.97 to 1.10)" in told
    assert "p50 grows by 1.00 (0.60 to 1.20) ms (at most 1.2), ratio 1.30 (1.20 to 1.50)" in told
