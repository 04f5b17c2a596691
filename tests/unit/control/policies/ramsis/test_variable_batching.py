"""Transitions if a part of the queue may be left."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.policies.ramsis.mdp import fixed_levels, whole_queue
from control.policies.ramsis.variable_batching import part_of_queue
from tests.property_examples import at_most
from tests.selection_world import a_setting


@settings(max_examples=at_most(40), deadline=None)
@given(st.floats(0, 2000), st.integers(1, 40), st.integers(1, 15), st.integers(0, 2**32))
def test_what_comes_next_is_a_distribution(qps: float, workers: int, steps: int, seed: int) -> None:
    process = part_of_queue(a_setting(qps, workers, levels=fixed_levels(0.1, steps)))
    rng = np.random.default_rng(seed)
    shape = process.on_time.shape[0], process.on_time.shape[2]
    assert process.expect(np.ones(shape))[process.allowed] == pytest.approx(1.0, abs=1e-9)
    choice = np.argmax(process.allowed * rng.random(process.allowed.shape), axis=1)
    mass, values = rng.random(shape), rng.random(shape)
    chain = process.under(choice)
    taken = np.take_along_axis(process.expect(values), choice[:, None], axis=1)[:, 0]
    assert chain.expect(values) == pytest.approx(taken)
    pushed = process.push(mass, choice)
    assert pushed.min() > -1e-9
    assert pushed.sum() == pytest.approx(mass.sum())
    assert np.vdot(pushed, values) == pytest.approx(np.vdot(mass, taken))


def test_transitions_of_a_queue_served_whole_equal_the_whole_queue_process() -> None:
    setting = a_setting(60.0, 3)
    part, whole = part_of_queue(setting), whole_queue(setting)
    values = np.random.default_rng(2).random((4, 6))
    ours, theirs = part.expect(values), whole.expect(values)
    for c, (model, batch) in enumerate(zip(part.model, part.batch, strict=True)):
        assert ours[batch - 1, c] == pytest.approx(theirs[batch - 1, model])


def test_queries_left_in_the_queue_have_waited_since_they_arrived() -> None:
    # One worker, no further arrivals: the second of two queries in 50 ms arrived with equal
    # probability in each half, and has more slack the later it arrived.
    setting = a_setting(1e-9, 1, levels=fixed_levels(0.1, 10))
    process = part_of_queue(setting)
    (one,) = np.flatnonzero((process.model == 0) & (process.batch == 1))
    slack = process.left[one].slack[0, 5]
    # Served in 20 ms: from 50 to 100 ms of slack before, less 20.
    assert slack == pytest.approx([0, 0, 0, 0.2, 0.2, 0.2, 0.2, 0.2, 0, 0, 0])
    assert process.left[one].arrived[0, 5] == pytest.approx([1, 0], abs=1e-6)


def test_choices_are_batches_within_the_slack_and_all_of_the_fastest() -> None:
    process = part_of_queue(a_setting(levels=(0.0, 0.05, 0.1)))
    pairs = list(zip(process.model.tolist(), process.batch.tolist(), strict=True))
    allowed = [pair for pair, may in zip(pairs, process.allowed[1, :, 1], strict=True) if may]
    assert sorted(allowed) == [(0, 1), (0, 2), (1, 1)]
    late = [pair for pair, may in zip(pairs, process.allowed[3, :, 0], strict=True) if may]
    assert sorted(late) == [(0, 1), (0, 2), (0, 3)]
