import numpy as np
import pytest

from control.estimation.accuracy.accuracy_sums import AccuracySums
from control.estimation.accuracy.shadow_accuracy import shadow_accuracy


def sums(equal: int, of: int) -> AccuracySums:
    found = AccuracySums()
    for number in range(of):
        found = found.plus(float(number < equal), 1.0)
    return found


def test_without_a_shadow_or_a_known_reference_there_is_no_accuracy() -> None:
    assert shadow_accuracy(AccuracySums(), 0.9) is None
    found = shadow_accuracy(sums(80, 100), None)
    assert found is not None
    assert (found.agreement, found.accuracy, found.least) == (0.8, None, None)


def test_the_estimate_is_agreement_times_the_accuracy_of_the_reference() -> None:
    found = shadow_accuracy(sums(80, 100), 0.9)
    assert found is not None
    assert found.accuracy == pytest.approx(0.72)
    assert found.least == pytest.approx(0.7)
    assert found.most == pytest.approx(0.9)
    assert found.low < 0.8 < found.high
    assert found.accuracy_low == pytest.approx(0.9 * found.low)


@pytest.mark.parametrize("common", [0.0, 0.5, 1.0])
def test_the_accuracy_lies_within_the_bounds_whatever_errors_have_in_common(common: float) -> None:
    """Two digit readers; a wrong one gives another digit, the same in ``common`` of the cases."""
    rng = np.random.default_rng(3)
    count, truth = 20_000, 7
    hard = rng.random(count)  # the same for both readers: errors coincide
    own = np.where(rng.random(count) < common, hard, rng.random(count))
    reference = np.where(hard < 0.9, truth, rng.integers(0, 7, count))
    ours = np.where(own < 0.75, truth, np.where(own < 0.9, 3, reference))
    right = float(np.mean(ours == truth))
    found = shadow_accuracy(sums(int(np.sum(ours == reference)), count), 0.9)
    assert found is not None
    assert found.least is not None
    assert found.most is not None
    assert found.least - 0.01 <= right <= found.most + 0.01


def test_estimate_is_unbiased_if_differing_answers_are_wrong_and_equal_ones_typical() -> None:
    rng = np.random.default_rng(5)
    count = 40_000
    reference = np.where(rng.random(count) < 0.9, 1, 2)
    ours = np.where(rng.random(count) < 0.8, reference, 3)
    found = shadow_accuracy(sums(int(np.sum(ours == reference)), count), 0.9)
    assert found is not None
    assert found.accuracy_low is not None
    assert found.accuracy_high is not None
    assert found.accuracy_low <= float(np.mean(ours == 1)) <= found.accuracy_high
