"""What a control variate saves, on scores whose relation is known."""

import numpy as np

from benchmarks.control_variates import KNOWN, line, pairs


def test_a_reference_that_says_all_saves_samples_and_one_that_says_nothing_none() -> None:
    rng = np.random.default_rng(0)
    shared = (rng.random(400) < 0.8).astype(float)
    # Means from 0.75 to 0.85 by single samples that differ: what is left to a test is little.
    alike = np.array([np.where(np.arange(400) < k, 1.0, shared) for k in range(0, 100, 5)])
    apart = (rng.random((20, 400)) < 0.8).astype(float)

    def saved(scores: np.ndarray) -> int:  # type: ignore[type-arg]
        found = list(pairs(scores, 40, (4, KNOWN), 1))
        return sum(each.plain.samples - each.controlled.samples for each in found)

    assert saved(alike) > 20 * 40
    assert abs(saved(apart)) < 0.2 * saved(alike)


def test_a_line_has_the_errors_of_both_tests() -> None:
    scores = (np.random.default_rng(2).random((30, 300)) < 0.8).astype(float)
    text = line((4, 350), list(pairs(scores, 20, (4, 350), 0)))
    assert text.startswith("   4 references of   350  saved")
    assert "false accepts" in text.partition("controlled:")[2]
