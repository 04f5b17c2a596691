"""The committee of past searches: who votes, with what weight, and until when."""

import numpy as np
import pytest

from control.policies.compass.search.camo import FORCED_AFTER, SearchOptions, SessionSearch, Slo
from control.policies.compass.search.committee import EPSILON, LEAST, Committee, Floats
from tests.unit.control.policies.compass.search.test_search import RULE, World, a_space, past

TRUTH = np.linspace(0.4, 0.9, 30)


def a_committee(*errors: float, members: str = "better") -> Committee:
    """Return members that predict the truth plus a constant error."""
    means = [TRUTH + error for error in errors]
    return Committee(means, [np.full(len(TRUTH), 0.01)] * len(errors), members)


def observed(committee: Committee, count: int, own_error: float) -> Committee:
    for point in range(count):
        committee.tell(point, float(TRUTH[point]), float(TRUTH[point]) + own_error)
    return committee


def test_before_the_first_observation_all_members_vote_alike() -> None:
    assert a_committee(0.0, 0.1, -0.3).weights == pytest.approx([1 / 3] * 3)


def test_weights_fall_with_the_square_of_a_members_error() -> None:
    weights = observed(a_committee(0.01, -0.03), LEAST - 1, own_error=0.2).weights
    assert weights[0] / weights[1] == pytest.approx((0.03**2 + EPSILON) / (0.01**2 + EPSILON))
    assert weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("members", "votes"), [("better", [True, False]), ("top-k", [True, True])])
def test_a_member_that_predicts_worse_than_the_search_itself_has_no_vote(
    members: str, votes: list[bool]
) -> None:
    committee = observed(a_committee(0.02, 0.1, members=members), LEAST, own_error=0.05)
    assert (committee.weights > 0).tolist() == votes


def test_the_best_five_vote() -> None:
    errors = [0.05, 0.01, 0.06, 0.02, 0.07, 0.03, 0.04]
    weights = observed(a_committee(*errors), LEAST, own_error=1.0).weights
    assert np.flatnonzero(weights).tolist() == [0, 1, 3, 5, 6]


def test_a_vote_is_the_weighted_mixture_of_the_members_probabilities() -> None:
    committee = observed(a_committee(0.01, -0.02), 2, own_error=0.2)

    def above(mean: Floats, deviation: Floats) -> Floats:
        return (mean > 0.65).astype(np.float64) * deviation / 0.01

    one, other = (TRUTH + error > 0.65 for error in (0.01, -0.02))
    wanted = committee.weights[0] * one + committee.weights[1] * other
    assert committee.vote(above) == pytest.approx(wanted)
    assert committee.mean() == pytest.approx(TRUTH + committee.weights @ [0.01, -0.02])


@pytest.mark.parametrize("members", ["better", "top-k"])
@pytest.mark.parametrize(
    ("own_error", "count", "mature"),
    [(0.01, LEAST - 1, False), (0.01, LEAST, True), (0.03, LEAST, False), (0.03, 20, False)],
)
def test_the_own_model_takes_over_once_it_predicts_better_than_the_committee(
    own_error: float, count: int, mature: bool, members: str
) -> None:
    assert observed(a_committee(0.02, 0.02, members=members), count, own_error).mature is mature


def test_only_the_newest_predictions_of_the_own_model_count() -> None:
    committee = observed(a_committee(0.02), 10, own_error=0.5)
    assert not committee.mature
    assert observed(committee, 6, own_error=0.0).mature


def test_without_members_the_own_model_decides_at_once() -> None:
    assert Committee([], []).mature


@pytest.mark.parametrize("wrong", [0.3, 0.5])
def test_members_with_large_errors_soon_have_little_weight(wrong: float) -> None:
    """Half of the members predict the truth times ``1 + wrong`` or ``1 - wrong``."""
    rng = np.random.default_rng(0)
    good = [TRUTH + rng.normal(0, 0.02, len(TRUTH)) for _ in range(6)]
    bad = [TRUTH * (1 + wrong * rng.choice([-1, 1], len(TRUTH))) for _ in range(6)]
    committee = Committee([*bad, *good], [np.full(len(TRUTH), 0.05)] * 12)
    shares = []
    for point in rng.permutation(len(TRUTH))[:5].tolist():
        committee.tell(point, float(TRUTH[point]), None)
        shares.append(float(committee.weights[:6].sum()))
    assert shares[0] < 0.1
    assert max(shares[1:]) < 0.02


def test_the_own_model_decides_after_ten_profiles_without_a_plan() -> None:
    world = World(a_space(), 3)
    unreachable = Slo(accuracy=0.995, latency_s=0.25)
    search = SessionSearch(
        world.deployment, unreachable, SearchOptions(rule=RULE), world.sent,
        [past(world, list(range(64)))],
    )  # fmt: skip
    origins = []
    for _ in range(FORCED_AFTER + 1):
        asked = search.ask()
        assert asked is not None
        origins.append(asked.origin)
        assert not search.tell(world.profiled(asked.configuration, unreachable))
    assert origins == ["committee"] * FORCED_AFTER + ["own"]
