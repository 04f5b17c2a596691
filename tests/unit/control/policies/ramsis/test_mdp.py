"""control/policies/ramsis/mdp.py and selection_transitions.py: states, choices, transitions."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.selection_reference import dense
from control.policies.ramsis.mdp import Setting, fixed_levels, model_levels, whole_queue
from control.policies.ramsis.pareto_models import CandidateModel, monotone
from control.problem.problem import SelectionError
from tests.property_examples import at_most
from tests.selection_world import BEST, FAST, GOOD, USUALLY_QUICK, a_setting


@st.composite
def any_settings(draw: st.DrawFn) -> Setting:
    """Draw settings with up to three models, batches up to 4 and irregular latencies."""
    slo_s = draw(st.floats(0.02, 1.0))
    latencies = st.lists(st.floats(1e-3, 2.0), min_size=1, max_size=4)
    drawn = draw(st.lists(st.tuples(st.floats(0, 1), latencies), min_size=1, max_size=3))
    part = draw(st.sampled_from([None, 0.3, 1.2]))  # of the latency: the time that a worker is busy
    models = tuple(
        monotone(
            CandidateModel(
                f"m{at}", accuracy, tuple(latency), tuple(s * part for s in latency if part)
            )
        )
        for at, (accuracy, latency) in enumerate(drawn)
    )
    first = monotone(CandidateModel("first", 0.5, (slo_s * draw(st.floats(0.01, 1.0)),)))
    return a_setting(
        qps=draw(st.floats(0, 2000)),
        workers=draw(st.integers(1, 70)),
        models=(first, *models),
        levels=fixed_levels(slo_s, draw(st.integers(1, 12))),
        dispersion=draw(st.sampled_from([1.0, 1.5, 10.0])),
        slo_s=slo_s,
    )


@settings(max_examples=at_most(60), deadline=None)
@given(any_settings(), st.integers(0, 2**32))
def test_transitions_of_any_setting_are_a_distribution(setting: Setting, seed: int) -> None:
    process = whole_queue(setting)
    rng = np.random.default_rng(seed)
    shape = process.on_time.shape[0], process.on_time.shape[2]
    certain = process.expect(np.ones(shape))
    assert certain[process.allowed] == pytest.approx(1.0, abs=1e-9)
    choice = np.argmax(process.allowed * rng.random(process.allowed.shape), axis=1)
    mass, values = rng.random(shape), rng.random(shape)
    pushed = process.push(mass, choice)
    assert pushed.min() > -1e-9
    assert pushed.sum() == pytest.approx(mass.sum())
    taken = np.take_along_axis(process.expect(values), choice[:, None], axis=1)[:, 0]
    assert np.vdot(pushed, values) == pytest.approx(np.vdot(mass, taken))


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("qps", [0.0, 5.0, 200.0])
@pytest.mark.parametrize("discretisation", ["fixed", "model"])
def test_factors_are_the_transitions_of_the_paper_summed_one_by_one(
    workers: int, qps: float, discretisation: str
) -> None:
    models = (FAST, GOOD, BEST, USUALLY_QUICK)
    levels = model_levels(0.1, models) if discretisation == "model" else fixed_levels(0.1, 6)
    setting = a_setting(qps * workers, workers, models, levels)
    process, plain = whole_queue(setting), dense(setting)
    values = np.random.default_rng(3).random((setting.longest + 1, len(levels)))
    expected = plain.transitions @ np.append(values[:-1].ravel(), values[-1, 0])
    states = expected[:-1].reshape(setting.longest, len(levels), -1).transpose(0, 2, 1)
    allowed = process.allowed[:-1]
    assert process.expect(values)[:-1][allowed] == pytest.approx(states[allowed], abs=1e-12)
    full = process.allowed[-1, :, 0]
    assert process.expect(values)[-1, full, 0] == pytest.approx(expected[-1, full], abs=1e-12)
    assert (
        allowed.transpose(0, 2, 1).reshape(-1, len(models)).tolist() == plain.allowed[:-1].tolist()
    )


def test_choices_are_models_within_the_slack_or_else_the_fastest_model() -> None:
    process = whole_queue(a_setting(levels=(0.0, 0.05, 0.1)))
    # With one query: no model meets 0 ms, so fast runs; fast and good meet 50 ms, all meet 100 ms.
    assert process.allowed[0].T.tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert process.on_time[0].T.tolist()[0] == [False, False, False]
    assert process.allowed[3].T.tolist() == [[True, False, False]] * 3
    assert not process.on_time[3].any()


def test_states_count_the_empty_and_the_full_queue() -> None:
    # The paper's size: 33 queue lengths by 101 levels, and the full queue.
    many = CandidateModel("many", 0.5, tuple(0.001 * b for b in range(1, 33)))
    assert a_setting(models=(many,), levels=fixed_levels(0.1)).states == 3334


def test_capacity_is_that_of_the_best_batch_within_the_slo() -> None:
    # 3 in 40 ms by fast; 10 workers.
    assert a_setting(workers=10).capacity_qps() == pytest.approx(750)
    # A worker that is busy for less than the batch latency serves more.
    assert a_setting(workers=10, models=(FAST, USUALLY_QUICK)).capacity_qps() == pytest.approx(1250)
    slow = a_setting(workers=10, models=(BEST,))
    assert slow.capacity_qps() == pytest.approx(10 / 0.09)


def test_models_may_have_been_measured_to_different_batches() -> None:
    short = CandidateModel("short", 0.95, (0.03,))
    setting = a_setting(models=(FAST, short))
    assert setting.latencies_s()[:, 1].tolist() == [0.03, math.inf, math.inf, math.inf]
    assert whole_queue(setting).allowed[1:, 1].any() == np.False_


def test_levels_of_the_models_are_their_latencies_within_the_slo() -> None:
    assert model_levels(0.1, (FAST, GOOD)) == (0, 0.02, 0.03, 0.04, 0.045, 0.08, 0.1)


def test_slo_below_the_fastest_model_is_refused_with_a_remedy() -> None:
    with pytest.raises(SelectionError, match=r"fast, takes 20 ms .* 15 ms; raise the SLO"):
        a_setting(slo_s=0.015)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": ()}, "no model to choose from"),
        ({"workers": 0}, "it takes one at least"),
        ({"slo_s": -1.0}, "must be above 0"),
        ({"slo_s": math.nan}, "must be above 0"),
        ({"levels_s": (0.0, 0.05)}, "from 0 to the SLO"),
        ({"levels_s": (0.0, 0.05, 0.05, 0.1)}, "from 0 to the SLO"),
    ],
)
def test_invalid_settings_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        replace(a_setting(), **change)  # type: ignore[arg-type]


def test_slack_in_no_steps_is_refused() -> None:
    with pytest.raises(SelectionError, match="give 1 or more"):
        fixed_levels(0.1, 0)
