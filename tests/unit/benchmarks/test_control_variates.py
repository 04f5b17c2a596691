"""Savings of control variates on scores with a known relation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.control_variates import (
    Case,
    Variates,
    controlled,
    line,
    pairs,
    run_controlled,
)
from benchmarks.sequential_tests import run_test
from control.policies.compass.search.sequential_test import StopRule, Verdict, plain


def test_only_an_informative_variate_saves_samples() -> None:
    rng = np.random.default_rng(0)
    shared = (rng.random(400) < 0.8).astype(float)
    # Means from 0.75 to 0.85 differ by single samples, so little variance is left to a test.
    alike = np.array([np.where(np.arange(400) < k, 1.0, shared) for k in range(0, 100, 5)])
    apart = (rng.random((20, 400)) < 0.8).astype(float)

    def saved(scores: np.ndarray) -> int:  # type: ignore[type-arg]
        found = list(pairs(scores, 40, Case(references=4, length=None), 1))
        return sum(each.plain.samples - each.controlled.samples for each in found)

    assert saved(alike) > 20 * 40
    assert abs(saved(apart)) < 0.2 * saved(alike)


def test_a_variate_that_explains_86_percent_of_the_variance_halves_the_samples() -> None:
    # No recorded search has such a variate: docs/results/planning.md.
    rule, floor = StopRule(), 0.5
    rng = np.random.default_rng(0)
    samples, false = {"plain": 0, "controlled": 0}, {"plain": 0, "controlled": 0}
    for run in range(300):
        mean = 0.47 if run % 2 else 0.53
        shared = rng.normal(0, 0.2, 2000)  # a cheap configuration ran on more of the samples
        reference = np.clip(0.5 + shared, 0, 1)
        scores = np.clip(mean + shared[:350] + rng.normal(0, 0.08, 350), 0, 1)
        beside = Variates(reference[None, :350], np.array([reference.mean()]), 2000)
        truth = Verdict.REJECTED if run % 2 else Verdict.ACCEPTED
        for name, found in (
            ("plain", run_test(scores, floor, rule)),
            ("controlled", run_controlled(scores, floor, rule, beside)),
        ):
            samples[name] += found.samples
            false[name] += found.verdict is not truth
    assert samples["controlled"] <= 0.5 * samples["plain"]
    assert false["controlled"] <= false["plain"] + 3


@given(st.integers(0, 1000), st.integers(1, 4))
def test_variates_are_unbiased_and_never_wider_than_the_mean_alone(seed: int, used: int) -> None:
    rng = np.random.default_rng(seed)
    references = rng.random((used, 200))
    scores = 0.5 * references[0, :80] + 0.5 * rng.random(80)
    found = controlled(scores, Variates(references, references.mean(axis=1), 200))
    assert found.variance <= plain(scores).variance
    assert abs(found.mean - 0.5) < 6 * np.sqrt(found.variance)


def test_one_variate_has_the_slope_of_the_regression() -> None:
    rng = np.random.default_rng(3)
    reference = rng.random(100)
    scores = 0.7 * reference[:60] + 0.1 * rng.random(60)
    own = reference[:60]
    slope = np.cov(scores, own)[0, 1] / own.var(ddof=1)
    found = controlled(scores, Variates(reference[None], np.array([0.5]), None))
    assert found.mean == pytest.approx(scores.mean() - slope * (own.mean() - 0.5))
    assert found.freedom == 58


def test_summary_line_shows_where_tests_end_and_their_error_rates() -> None:
    scores = (np.random.default_rng(2).random((30, 300)) < 0.8).astype(float)
    case = Case(references=4, length=350)
    text = line(case, list(pairs(scores, 20, case, 0)))
    assert text.startswith("best 1 of   4,   350, 50 to 350 samples")
    assert "at the cap" in text
    assert "false accepts" in text.partition("controlled:")[2]
