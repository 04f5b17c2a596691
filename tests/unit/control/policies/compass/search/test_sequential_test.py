"""The adaptive test: its error rates and savings."""

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sequential_tests import run_test
from control.policies.compass.search.sequential_test import (
    Estimate,
    StopRule,
    Verdict,
    at_least,
    chernoff,
    doubtful,
    look,
    plain,
    stratified,
    with_prior,
)
from control.problem.problem import PlanError


def verdicts(mean: float, rule: StopRule, runs: int = 400) -> tuple[float, float]:
    """Return the share accepted at a floor of 0.8 and the mean number of samples."""
    rng = np.random.default_rng(int(mean * 1000))
    found = [run_test((rng.random(rule.most) < mean).astype(float), 0.8, rule) for _ in range(runs)]
    accepted = np.mean([each.verdict is Verdict.ACCEPTED for each in found])
    return float(accepted), float(np.mean([each.samples for each in found]))


def test_clear_cases_are_decided_right_with_few_samples() -> None:
    for mean, right in ((0.95, 1.0), (0.5, 0.0)):
        accepted, samples = verdicts(mean, StopRule())
        assert accepted == pytest.approx(right, abs=0.01)
        assert samples < 90


def test_score_far_below_the_floor_is_rejected_before_the_minimum_of_samples() -> None:
    found = run_test(np.array([0.2, 0.6, 0.0, 0.4, 0.2] * 70), 0.9, StopRule())
    assert (found.verdict, found.samples) == (Verdict.REJECTED, 10)
    assert found.confidence < 0.01


@pytest.mark.thorough
def test_early_looks_together_falsely_reject_at_most_one_test_in_a_hundred() -> None:
    # Scores of 0 or 1 with the floor as the mean are the hardest case of Chernoff's bound.
    rng = np.random.default_rng(7)
    for floor in (0.5, 0.8, 0.95):
        scores = (rng.random((3000, 350)) < floor).astype(float)
        found = [run_test(each, floor, StopRule()) for each in scores]
        early = [t.verdict is Verdict.REJECTED and t.samples < StopRule().least for t in found]
        assert np.mean(early) <= 0.01


def test_false_accepts_just_below_the_floor_stay_rare() -> None:
    # Repeated looks exceed the nominal 1 %; measured over 400 runs each.
    rates = [verdicts(mean, StopRule())[0] for mean in (0.74, 0.77)]
    assert rates[0] <= 0.03
    assert rates[1] <= 0.08


def test_the_two_sided_rule_needs_more_samples() -> None:
    one, two = (verdicts(0.9, StopRule(test=name))[1] for name in ("one-sided", "two-sided"))
    assert two > one


def test_strata_that_explain_the_score_leave_the_variance_within() -> None:
    # Circinus v1, Theorem 1: the variance between strata vanishes, whatever it was.
    rng = np.random.default_rng(1)
    strata = [0, 1] * 100
    scores = np.array([0.2, 0.8] * 100) + rng.normal(0, 0.05, 200)
    assert stratified(scores, strata).variance < plain(scores).variance / 5
    assert stratified(scores, strata).mean == pytest.approx(plain(scores).mean)


@given(
    st.lists(st.tuples(st.floats(0.0, 0.4), st.floats(0.5, 0.6)), min_size=2, max_size=6),
    st.integers(20, 60),
)
def test_variance_of_all_samples_is_that_within_strata_and_that_between(
    drawn: list[tuple[float, float]], inside: int
) -> None:
    """Circinus v1, Theorem 1: ``(sum p sigma^2) / N`` against that plus the variance between."""
    lowest, spread = np.array(drawn).T
    rounds = [lowest + spread * (number % 2) for number in range(inside)]  # round robin
    count, scores = len(drawn) * inside, np.concatenate(rounds)
    estimate = stratified(scores, [*range(len(drawn))] * inside)
    within = (inside - 1) / inside * count * estimate.variance
    between = float(((np.mean(rounds, axis=0) - scores.mean()) ** 2).mean())
    assert (count - 1) * plain(scores).variance == pytest.approx(within + between)


def test_freedom_of_strata_is_that_of_welch_and_satterthwaite() -> None:
    scores, strata = np.array([0.0, 0.4, 1.0, 0.0, 1.0, 0.2, 0.9, 0.1]), [0, 0, 0, 1, 1, 1, 1, 1]
    first, second = (np.var(scores[part], ddof=1) for part in (slice(3), slice(3, 8)))
    # The variances of the two means, weighted by the shares of the samples.
    parts = (3 / 8) ** 2 * first / 3, (5 / 8) ** 2 * second / 5
    found = stratified(scores, [*strata, 0, 1])  # of more samples than have a score
    assert (found.mean, found.variance) == pytest.approx((scores.mean(), sum(parts)))
    assert found.freedom == pytest.approx(sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 4))


def test_one_sample_has_the_variance_of_a_coin() -> None:
    assert plain(np.array([1.0])) == Estimate(1.0, 0.25, 1.0)
    assert stratified(np.array([1.0]), [0]) == Estimate(1.0, 0.25, 1.0)


def test_equal_scores_have_the_variance_of_one_that_differs() -> None:
    n = 50
    scores = np.array([1.0] * (n - 1) + [0.0])
    assert plain(np.ones(n)) == Estimate(1.0, pytest.approx(scores.var() / n), n - 1.0)


def test_looks_are_at_multiples_up_to_the_samples_or_the_most() -> None:
    rule = StopRule(least=20, most=40, look=10)
    assert [rule.looks(samples) for samples in (9, 10, 25, 100)] == [
        (), (10,), (10, 20), (10, 20, 30, 40),
    ]  # fmt: skip


def test_equal_scores_are_not_taken_for_certainty() -> None:
    assert at_least(plain(np.ones(50)), 0.99) < 0.99
    assert run_test(np.ones(350), 0.5, StopRule()).verdict is Verdict.ACCEPTED
    assert run_test(np.zeros(350), 0.5, StopRule()).verdict is Verdict.REJECTED


def test_five_samples_are_a_cap_of_five() -> None:
    found = run_test(np.array([1.0, 1.0, 0.0, 1.0, 1.0]), 0.9, StopRule())
    assert (found.samples, found.verdict) == (5, Verdict.REJECTED)


def test_samples_without_truth_are_refused() -> None:
    with pytest.raises(PlanError, match="give labels"):
        run_test(np.array([]), 0.9, StopRule())


@pytest.mark.parametrize(
    "wrong",
    [
        {"least": 1}, {"least": 400}, {"look": 0}, {"confidence": 0.5}, {"confidence": 1.0},
        {"cap": 0.49}, {"cap": 1.0}, {"test": "three-sided"},
    ],
)  # fmt: skip
def test_invalid_rules_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        StopRule(**wrong)  # type: ignore[arg-type]


def test_complete_sample_set_decides_with_certainty() -> None:
    scores = np.array([1.0, 0.0] * 50)
    found = [run_test(scores, floor, StopRule(most=100, population=100)) for floor in (0.5, 0.51)]
    assert [each.verdict for each in found] == [Verdict.ACCEPTED, Verdict.REJECTED]
    assert [each.samples for each in found] == [100, 100]
    assert [(each.confidence, each.estimate.variance) for each in found] == [(1.0, 0.0), (0.0, 0.0)]
    assert {each.estimate.mean for each in found} == {0.5}
    assert not doubtful(found[0], 0.5, StopRule(), Estimate(0.1, 1e-4, 1.0))  # no prior changes it


def test_samples_of_a_finite_set_give_more_certainty_than_of_an_infinite_one() -> None:
    scores = np.random.default_rng(0).random(350)
    endless, counted = (
        run_test(scores, 0.45, StopRule(population=population)) for population in (None, 350)
    )
    assert counted.samples <= endless.samples


def test_no_accuracy_is_too_low_for_the_floor_0() -> None:
    """350 samples without a right answer were rejected."""
    found = run_test(np.zeros(350), 0.0, StopRule())
    assert (found.verdict, found.samples, found.confidence) == (Verdict.ACCEPTED, 50, 1.0)


LUCKY = np.array([1.0] * 46 + [0.0] * 4 + [1.0, 1.0, 0.0, 1.0] * 200)  # then three quarters


def test_a_prior_and_samples_count_by_their_precision() -> None:
    found = with_prior(Estimate(0.9, 0.01, 49.0), Estimate(0.6, 0.02, 1.0))
    assert (found.mean, found.variance) == pytest.approx((0.8, 0.02 / 3))


def test_lucky_first_samples_of_an_improbable_configuration_are_no_verdict() -> None:
    """Of the cheapest plans of finished searches 5 % did not comply, most of them by such luck."""
    rule, unlikely, likely = StopRule(), Estimate(0.7, 0.05**2, 1.0), Estimate(0.95, 0.05**2, 1.0)
    first = run_test(LUCKY, 0.8, rule)
    assert (first.verdict, first.samples) == (Verdict.ACCEPTED, 50)
    assert doubtful(first, 0.8, rule, unlikely)
    assert not doubtful(first, 0.8, rule, likely)
    again = run_test(LUCKY, 0.8, rule, prior=unlikely)
    assert again.verdict is Verdict.REJECTED
    assert 50 < again.samples <= rule.most
    assert run_test(LUCKY, 0.8, rule, prior=likely) == first


def test_a_prior_rejects_no_earlier_than_samples_alone() -> None:
    scores = np.array([1.0, 1.0, 1.0, 0.0, 1.0] * 200)  # at the floor
    found = run_test(scores, 0.8, StopRule(), prior=Estimate(0.1, 1e-4, 1.0))
    assert (found.verdict, found.samples) == (Verdict.REJECTED, 350)


@given(st.integers(1, 60), st.floats(0.01, 0.99), st.floats(0, 1))
def test_chernoff_bounds_the_probability_of_so_few_right_answers(
    samples: int, floor: float, part: float
) -> None:
    right = int(part * samples)
    bound = chernoff(right / samples, floor, samples)
    assert scipy.stats.binom.cdf(right, samples, floor) <= bound + 1e-9
    assert bound <= 1.0
    assert chernoff(0.0, floor, samples) == pytest.approx((1 - floor) ** samples)


def test_all_early_looks_together_reject_a_good_configuration_no_more_often_than_a_late_one() -> (
    None
):
    rule = StopRule()
    # No right answer of 10: a chance of 0.4 % and of 0.2 %, against 1 % for the four early looks.
    for floor, verdict in ((1 - 0.004**0.1, Verdict.OPEN), (1 - 0.002**0.1, Verdict.REJECTED)):
        found = look(plain(np.zeros(rule.look)), rule.look, floor, rule)
        assert found.verdict is verdict


def test_samples_of_a_finite_set_leave_the_variance_of_the_rest() -> None:
    rule = StopRule(population=200)
    found = look(Estimate(0.6, 0.01, 49.0), 50, 0.5, rule)
    assert found.estimate == Estimate(0.6, pytest.approx(0.01 * 150 / 200), 49.0)


@pytest.mark.parametrize(
    ("deviations", "alone", "with_a_prior"),
    [
        (1.2, Verdict.REJECTED, Verdict.REJECTED),  # a confidence of 0.88
        (1.4, Verdict.ACCEPTED, Verdict.REJECTED),  # 0.92
        (1.5, Verdict.ACCEPTED, Verdict.ACCEPTED),  # 0.933
    ],
)
def test_the_last_sample_confirms_a_doubtful_plan_by_a_higher_confidence(
    deviations: float, alone: Verdict, with_a_prior: Verdict
) -> None:
    rule, floor, knows_nothing = StopRule(), 0.8, Estimate(0.0, 1e9, np.inf)
    last = Estimate(floor + deviations * 0.02, 0.02**2, np.inf)
    assert look(last, rule.most, floor, rule).verdict is alone
    assert look(last, rule.most, floor, rule, knows_nothing).verdict is with_a_prior
    assert look(last, rule.most - rule.look, floor, rule).verdict is Verdict.OPEN


def test_what_was_not_accepted_is_not_doubtful() -> None:
    rejected = run_test(np.zeros(350), 0.8, StopRule())
    assert not doubtful(rejected, 0.8, StopRule(), Estimate(0.1, 1e-4, np.inf))
