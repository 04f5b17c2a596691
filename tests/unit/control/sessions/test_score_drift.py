"""Detection delay and error rate of the test on labelled scores."""

from collections.abc import Callable

import numpy as np
import pytest

from control.sessions.score_drift import KEPT, ScoreDrift, Scores

FLOOR = 0.9
IN_A_REPORT = 4  # labels
Draw = Callable[[np.random.Generator, int], np.ndarray]


def right_or_wrong(mean: float) -> Draw:
    return lambda rng, count: (rng.random(count) < mean).astype(float)


def of_five(mean: float) -> Draw:
    return lambda rng, count: rng.binomial(5, mean, count) / 5


def labels_until_alarm(drift: ScoreDrift, draw: Draw, most: int, seed: int, at_s: float) -> int:
    """Feed scores until an alarm; return the number of labels, or ``most`` without an alarm."""
    rng = np.random.default_rng(seed)
    for number in range(0, most, IN_A_REPORT):
        scores = draw(rng, IN_A_REPORT)
        squares = float((scores**2).sum())
        drift.add(Scores(at_s + number, IN_A_REPORT, float(scores.sum()), squares))
        if drift.below(FLOOR) is not None:
            return number + IN_A_REPORT
    return most


@pytest.mark.parametrize("draw", [right_or_wrong(FLOOR), of_five(FLOOR)])
def test_false_alarms_are_rare_at_the_floor_itself(draw: Draw) -> None:
    runs, labels = 20, 1000
    found = [labels_until_alarm(ScoreDrift(), draw, labels, s, 0.0) for s in range(runs)]
    assert sum(each < labels for each in found) <= 1


@pytest.mark.parametrize(("mean", "within"), [(0.8, 160), (0.7, 72), (0.6, 44), (0.4, 28)])
def test_a_fall_is_seen_soon_and_its_time_is_about_right(mean: float, within: int) -> None:
    found = []
    for seed in range(30):
        drift = ScoreDrift()
        labels_until_alarm(drift, right_or_wrong(0.97), 400, seed, 0.0)
        found.append(labels_until_alarm(drift, right_or_wrong(mean), 1000, seed + 99, 400.0))
        window = drift.below(FLOOR)
        assert window is not None
        assert window.at_s > 400.0 - 2 * IN_A_REPORT * 20
    assert np.percentile(found, 90) <= within


def test_a_fall_to_above_the_floor_is_rarely_an_alarm() -> None:
    found = []
    for seed in range(30):
        drift = ScoreDrift()
        labels_until_alarm(drift, right_or_wrong(0.99), 400, seed, 0.0)
        found.append(labels_until_alarm(drift, right_or_wrong(0.94), 400, seed + 99, 400.0))
    assert sum(each < 400 for each in found) <= 3


def test_old_scores_are_forgotten() -> None:
    drift = ScoreDrift()
    for at_s in range(1000):
        drift.add(Scores(at_s, 10, 10.0, 10.0))
    assert KEPT <= len(drift) < KEPT + 10
