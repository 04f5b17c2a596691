from typing import Any

import numpy as np
import pytest

from control.estimation.accuracy.accuracy_drift import (
    FEWEST,
    accuracies_to_plan_by,
    all_measured,
    drift_text,
    drifted_paths,
    expected_of,
)
from control.estimation.accuracy.accuracy_sums import AccuracySums
from control.estimation.accuracy.recent_accuracy import FRESH_S, MOST_RECENT, RecentAccuracy
from profiles.measurements import PathAccuracy
from profiles.profile_table import ProfileTable
from schemas.records import AccuracyRow


def a_row(right: int, of: int, path: str = "a/v > b/v", **changes: Any) -> AccuracyRow:
    sums = AccuracySums(queries=of, right=right, of=of, right_right=right, right_of=right, of_of=of)
    low, high = sums.interval()
    given = {
        "path": path, "slo_class": "", "hour_s": 0.0, "queries": of, "right": right, "of": of,
        "right_right": right, "right_of": right, "of_of": of, "accuracy": right / of, "low": low,
        "high": high, "expected": 0.9, "expected_low": 0.88, "expected_high": 0.92,
    }  # fmt: skip
    return AccuracyRow(**{**given, **changes})


def test_a_path_has_drifted_where_the_intervals_are_disjoint() -> None:
    assert drifted_paths([a_row(80, 100)]) == ()  # 63 to 90 %, at 99.9 %
    (found,) = drifted_paths([a_row(320, 400)])
    assert found.accuracy == 0.8
    assert "a/v > b/v measures 80.0 %" in drift_text(found)
    assert "over its last 400 labels; its profile has 90.0 % (88.0 to 92.0)" in drift_text(found)
    assert len(drifted_paths([a_row(399, 400)])) == 1  # higher accuracy is drift too


def test_a_few_measurements_or_an_unknown_profile_are_no_drift() -> None:
    assert drifted_paths([a_row(0, FEWEST - 1)]) == ()
    assert drifted_paths([a_row(0, 400, expected_low=None, expected_high=None)]) == ()


def test_shadows_drift_beyond_the_bounds_of_their_bias_only() -> None:
    by = {"reference": "a/w > b/w", "reference_accuracy": 0.95}
    assert drifted_paths([a_row(360, 400, **by)]) == ()
    assert drifted_paths([a_row(348, 400, **by)]) == ()  # 80.6 to 91.8 % agree; 5 points of bias
    assert len(drifted_paths([a_row(280, 400, **by)])) == 1
    assert drifted_paths([a_row(280, 400, reference="x", reference_accuracy=None)]) == ()


def test_drifted_path_is_planned_by_labels_before_shadows() -> None:
    by = {"reference": "a/w > b/w", "reference_accuracy": 0.95}
    steady, gone = a_row(360, 400), a_row(280, 400)
    both = a_row(350, 400, "a/v > b/v + a/w > b/w")
    assert accuracies_to_plan_by(all_measured([steady, both])) == {}
    other = a_row(380, 400, "a/w > b/w")
    found = accuracies_to_plan_by(all_measured([gone, other, both, a_row(300, 400, **by)]))
    assert found == {"a/v > b/v": 0.7, "a/w > b/w": 0.95}


def test_profile_gives_the_measured_accuracy_of_a_path_with_its_interval() -> None:
    table = ProfileTable("p", (), {}, (PathAccuracy(("a/v", "b/v"), 0.9, 1000),))
    found = expected_of(table, "a/v > b/v")
    assert found is not None
    assert found.accuracy == 0.9
    assert found.low == pytest.approx(0.88, abs=0.002)
    assert expected_of(table, "a/v > b/w") is None


def test_accuracy_window_is_cut_when_measurements_disagree() -> None:
    rng = np.random.default_rng(1)
    recent = RecentAccuracy()
    for number in range(2000):
        recent.add(float(rng.random() < 0.9), 1.0, float(number))
    assert recent.sums().queries == MOST_RECENT
    seen = []
    for number in range(2000, 2400):
        recent.add(float(rng.random() < 0.6), 1.0, float(number))
        seen.append(recent.sums().queries)
    noticed = next(n for n, queries in enumerate(seen) if queries < MOST_RECENT)
    assert noticed < 60
    assert recent.sums().accuracy == pytest.approx(0.6, abs=0.06)
    recent.forget(2399.0 + FRESH_S + 1)
    assert recent.sums().queries == 0


def test_accuracy_window_is_rarely_cut_at_steady_accuracy() -> None:
    cut = 0
    for seed in range(8):
        rng, recent = np.random.default_rng(seed), RecentAccuracy()
        for number in range(1000):
            recent.add(float(rng.random() < 0.8), 1.0, float(number))
        cut += recent.sums().queries < MOST_RECENT
    assert cut <= 2
