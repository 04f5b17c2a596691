"""control/policies/ramsis/pareto_models.py: the Pareto-optimal models and their latencies."""

import math
from dataclasses import replace

import pytest

from control.policies.ramsis.pareto_models import (
    CandidateModel,
    extrapolated_s,
    monotone,
    worthwhile,
    worthwhile_alone,
)
from control.problem.problem import SelectionError

SMALL = CandidateModel("small", 0.6, (0.010, 0.015, 0.020))
LARGE = CandidateModel("large", 0.8, (0.030, 0.050, 0.070))


def test_latency_that_falls_with_the_batch_is_lowered_to_what_a_larger_batch_takes() -> None:
    odd = CandidateModel("odd", 0.5, (0.030, 0.020, 0.025, 0.022))
    assert monotone(odd) == CandidateModel("odd", 0.5, (0.020, 0.020, 0.022, 0.022))


def test_latency_and_occupancy_are_lowered_and_missing_occupancy_is_the_latency() -> None:
    odd = CandidateModel("odd", 0.5, (0.030, 0.020), (0.004, 0.003))
    assert monotone(odd) == CandidateModel("odd", 0.5, (0.020, 0.020), (0.003, 0.003))
    assert (monotone(odd).busy_s, SMALL.busy_s) == ((0.003, 0.003), SMALL.latency_s)


def test_a_model_that_occupies_its_worker_for_less_stays() -> None:
    quick = replace(SMALL, name="quick", latency_s=(0.011, 0.016, 0.021), occupied_s=(0.001,) * 3)
    assert worthwhile([quick, SMALL]) == (SMALL, quick)
    assert worthwhile([replace(quick, latency_s=SMALL.latency_s), SMALL])[0].name == "quick"


def test_the_full_queue_lies_on_the_line_through_the_measured_batches() -> None:
    assert extrapolated_s(LARGE.latency_s) == pytest.approx(0.090)
    assert extrapolated_s((0.02,)) == 0.02


def test_a_model_that_is_slower_and_less_accurate_is_left_out() -> None:
    worse = CandidateModel("worse", 0.59, (0.011, 0.015, 0.020))
    assert worthwhile([LARGE, worse, SMALL]) == (SMALL, LARGE)


def test_a_model_that_is_faster_in_large_batches_only_stays() -> None:
    batching = CandidateModel("batching", 0.6, (0.011, 0.012, 0.013))
    assert worthwhile([batching, SMALL]) == (SMALL, batching)
    assert worthwhile_alone([batching, SMALL]) == (SMALL,)


def test_model_measured_for_larger_batches_is_kept() -> None:
    further = CandidateModel("further", 0.6, (0.010, 0.015, 0.020, 0.021))
    assert worthwhile([SMALL, further]) == (further,)
    short = CandidateModel("short", 0.7, (0.010,))
    assert worthwhile([short, SMALL]) == (SMALL, short)


def test_first_of_equal_models_is_kept() -> None:
    twin = CandidateModel("twin", SMALL.accuracy, SMALL.latency_s)
    assert worthwhile([SMALL, twin]) == (SMALL,)
    assert worthwhile([]) == ()


@pytest.mark.parametrize("latency", [(), (0.0,), (0.1, -1.0), (math.inf,), (math.nan,)])
def test_invalid_latencies_are_refused(latency: tuple[float, ...]) -> None:
    with pytest.raises(SelectionError, match="profile it again"):
        CandidateModel("odd", 0.5, latency)
    if latency:
        with pytest.raises(SelectionError, match="profile it again"):
            CandidateModel("odd", 0.5, (0.1,) * len(latency), latency)


@pytest.mark.parametrize("accuracy", [-0.1, 1.1, math.nan])
def test_an_accuracy_outside_0_to_1_is_refused(accuracy: float) -> None:
    with pytest.raises(SelectionError, match=r"must lie in 0\.\.1"):
        CandidateModel("odd", accuracy, (0.1,))
