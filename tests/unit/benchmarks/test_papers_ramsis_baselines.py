"""benchmarks/papers/ramsis_baselines.py: one model and batch for a load, and its table."""

import pytest

from benchmarks.papers.ramsis_baselines import (
    Fixed,
    held,
    jellyfish,
    model_switching,
    tuned_static,
)
from control.policies.ramsis.pareto_models import CandidateModel
from control.policies.ramsis.tables import TableEntry
from control.problem.problem import SelectionError

QUICK = CandidateModel("quick", 0.6, (0.02, 0.03, 0.04, 0.06))
RIGHT = CandidateModel("right", 0.8, (0.05, 0.07, 0.12, 0.2))
BOTH = (QUICK, RIGHT)


def test_jellyfish_takes_the_most_accurate_model_that_carries_the_load() -> None:
    # right carries 20 and 28.6/s in batches of 1 and 2; those of 3 take over half of the SLO.
    assert jellyfish(BOTH, slo_s=0.15, share_qps=10.0) == Fixed("right", 2)
    assert jellyfish(BOTH, slo_s=0.15, share_qps=27.0) == Fixed("right", 2)


def test_jellyfish_keeps_a_margin_over_the_load() -> None:
    assert jellyfish(BOTH, slo_s=0.15, share_qps=28.0) == Fixed("quick", 4)
    assert jellyfish(BOTH, slo_s=0.15, share_qps=28.0, margin=1.0) == Fixed("right", 2)


def test_jellyfish_in_overload_runs_the_fastest_in_its_largest_batch() -> None:
    assert jellyfish(BOTH, slo_s=0.06, share_qps=1000.0) == Fixed("quick", 4)


def test_model_switching_tries_every_model_with_the_batch_of_another() -> None:
    tried: list[Fixed] = []

    def trial(choice: Fixed) -> float:
        tried.append(choice)
        return {"right": 0.01, "quick": 0.0099}[choice.model]

    # right cannot carry 29/s, so the batch is that of quick.
    assert model_switching(BOTH, 0.15, 29.0, trial) == Fixed("quick", 4)
    assert tried == [Fixed("right", 4), Fixed("quick", 4)]


def test_model_switching_takes_the_fastest_where_every_trial_fails() -> None:
    assert model_switching(BOTH, 0.15, 10.0, lambda choice: 1.0) == Fixed("quick", 2)


def test_a_model_without_the_batch_is_not_tried() -> None:
    short = CandidateModel("short", 0.9, (0.05,))
    found = model_switching((QUICK, RIGHT, short), 0.15, 21.0, lambda choice: 0.0)
    assert found == Fixed("right", 2)


def test_tuned_choice_has_the_batch_with_the_least_violation() -> None:
    seen = {1: 0.5, 2: 0.002, 3: 0.002}

    def trial(choice: Fixed) -> float:
        return seen[choice.most] if choice.model == "right" else 0.0

    # A batch of 4 of right takes longer than the SLO.
    assert tuned_static(BOTH, 0.15, trial) == Fixed("right", 2)


def test_static_choice_may_not_exist() -> None:
    assert tuned_static(BOTH, 0.15, lambda choice: 0.01) is None


def test_a_choice_as_a_table_is_the_same_in_every_state() -> None:
    table = held(Fixed("right", 2), BOTH, slo_s=0.15, qps=100.0)
    wanted = [
        TableEntry("right", 1),
        TableEntry("right", 2),
        TableEntry("right", 2),
        TableEntry("right", 2),
    ]
    for slack_s in (-1.0, 0.0, 0.07, 0.15):
        assert [table.choose(queue, slack_s) for queue in (1, 2, 3, 40)] == wanted


@pytest.mark.parametrize("choice", [Fixed("right", 5), Fixed("right", 0), Fixed("other", 1)])
def test_a_table_holds_what_was_profiled_only(choice: Fixed) -> None:
    with pytest.raises(SelectionError, match="known are quick up to 4, right up to 4"):
        held(choice, BOTH, slo_s=0.15, qps=100.0)
