from pathlib import Path

import numpy as np

from benchmarks.papers.kairos_learning import AFTER, learned_errors, learning_section
from tests.unit.benchmarks.test_papers_kairos import a_data_folder

SIZES = [10, 100, 1000]
SHARES = np.array([0.5, 0.4, 0.1])
# A line without spread.
REPEATS = {"gpu": {size: np.full(3, 0.01 + 1e-5 * size) for size in SIZES}}


def test_a_line_is_known_after_ten_queries_without_a_profile() -> None:
    errors = learned_errors(REPEATS, SIZES, SHARES, None)
    assert len(errors) == len(AFTER)
    assert max(error for of in errors for error in of) < 1e-6


def test_a_line_replaces_a_profile_that_is_off() -> None:
    errors = learned_errors(REPEATS, SIZES, SHARES, lambda name, size: 0.02 + 2e-5 * size)
    assert max(error for of in errors for error in of) < 1e-6


def test_the_error_of_a_curve_whose_profile_is_off_shrinks_with_every_query() -> None:
    curve = {"gpu": {size: np.full(3, 0.01 + 1e-3 * size**0.5) for size in SIZES}}
    errors = learned_errors(curve, SIZES, SHARES, lambda name, size: 0.02 + 2e-3 * size**0.5)
    (ten,), (hundred,), (most,) = errors
    assert 0.5 > ten > hundred > most
    assert most < 0.05


def test_the_section_has_the_mean_and_the_worst_type_of_every_model(tmp_path: Path) -> None:
    # Repeats of the data: 10, 11 and 12 s at size 10, 20 to 22 s at size 20.
    text = learning_section(a_data_folder(tmp_path))
    (row,) = [line for line in text.splitlines() if line.startswith("| rm2 ")]
    assert row.count("%") == 2 * 2 * len(AFTER)
