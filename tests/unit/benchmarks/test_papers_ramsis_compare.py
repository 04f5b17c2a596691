"""benchmarks/papers/ramsis_compare.py and related modules, on models that are quick to play."""

import pytest

from benchmarks.papers.ramsis_baselines import Fixed
from benchmarks.papers.ramsis_compare import (
    CENTRAL,
    DROPPING,
    DROPPING_BY_TURN,
    DROPPING_IN_RUNS,
    JELLYFISH,
    ONE_BY_ONE,
    PAPER,
    RUNS,
    STATIC,
    SWITCHING,
    Row,
    at_constant_load,
    constant,
    on_trace,
    policies,
)
from benchmarks.papers.ramsis_page import page
from benchmarks.papers.ramsis_trials import (
    Cluster,
    by_turn,
    from_one_queue,
    sent_in_runs,
    tuned,
    tuned_dropping,
)
from control.policies.ramsis.pareto_models import CandidateModel

QUICK = CandidateModel("quick", 0.6, (0.01, 0.015, 0.02, 0.025))
RIGHT = CandidateModel("right", 0.8, (0.03, 0.05, 0.07, 0.09))
SMALL = Cluster(models=(QUICK, RIGHT), slo_s=0.1, workers=3)


def test_the_tuned_choice_is_found_by_trial() -> None:
    assert tuned(SMALL, 20.0) == Fixed("right", 1)
    assert tuned(SMALL, 300.0).model == "quick"
    # Nothing carries 1000/s, so Jellyfish+ runs its fallback.
    assert tuned(SMALL, 1000.0) == Fixed("quick", 4)


def test_choice_with_dropping_is_tuned_by_trials_with_dropping() -> None:
    for serve in (from_one_queue, by_turn, sent_in_runs(2)):
        assert tuned_dropping(SMALL, 20.0, serve).model == "right"
    # 3 workers serve 480/s in fours; whole batches serve most of an overload.
    assert tuned_dropping(SMALL, 1000.0, from_one_queue) == Fixed("quick", 4)
    assert tuned_dropping(SMALL, 1000.0, sent_in_runs(4)) == Fixed("quick", 4)


def test_ramsis_in_overload_serves_at_least_as_much_as_the_static_choice() -> None:
    found = policies(SMALL, [600.0])
    times = constant(600, 0).tolist()
    ours, *others = [
        found[name].play(SMALL, times)
        for name in (RUNS, DROPPING, DROPPING_BY_TURN, DROPPING_IN_RUNS, ONE_BY_ONE)
    ]
    assert all(ours.violation <= other.violation + 0.005 for other in others)
    assert ours.violation == pytest.approx(0.2, abs=0.02)  # 480 of 600 are served


def test_every_policy_meets_the_same_arrivals() -> None:
    rows = list(at_constant_load(SMALL, [40], 2, lambda what: None))
    assert [row.policy for row in rows] == 2 * list(policies(SMALL, [40.0]))
    for seed in (0, 1):
        assert len({row.queries for row in rows if row.seed == seed}) == 1
    by_name = {row.policy: row for row in rows}
    assert by_name[CENTRAL].violation < 0.01
    assert by_name[CENTRAL].accuracy >= by_name[STATIC].accuracy - 0.01
    assert by_name[PAPER].accuracy == pytest.approx(0.75, abs=0.05)


def test_page_reports_a_small_but_certain_miss() -> None:
    rows = [
        Row(on="constant", at=4000, seed=seed, policy=name, queries=9, accuracy=0.5, violation=v)
        for seed in range(3)
        for name, v in (
            *((name, 0.0) for name in (PAPER, JELLYFISH, SWITCHING)),
            ("ramsis", 0.0496 + seed / 1e5),
            ("tuned static, dropping", 0.049),
        )
    ]
    judged = "| `ramsis` | `tuned static, dropping` | - | - | 4000 (-0.030) | 4000 (+0.061) |"
    assert judged in page(rows, "abc1234")


def test_page_shows_played_cases_and_omits_missing_ones() -> None:
    rows = [
        Row(on="constant", at=400, seed=seed, policy=name, queries=9, accuracy=a, violation=v)
        for seed in (0, 1)
        for name, a, v in (
            (PAPER, 0.80 + seed / 100, 0.0),
            (JELLYFISH, 0.75, 0.1),
            (SWITCHING, 0.78, 0.0),
            (STATIC, 0.79, 0.0),
            ("tuned static, round robin", 0.79, 0.02),
            ("tuned static, dropping", 0.79, 0.0),
            ("ramsis", 0.81, 0.0),
            ("ramsis, one by one", 0.81, 0.0),
            ("ramsis-variable", 0.81, 0.0),
            (CENTRAL, 0.78 + seed / 50, 0.0),
        )
    ]
    told = page(rows, "abc1234")
    assert "Commit abc1234, " in told
    assert "| 400 | 80.500 ± 6.353 / 0 | 75.000 / 10.000 | 78.000 / 0 | 79.000 / 0 |" in told
    gained = "5.500 ± 6.353 | 5.00 to 6.00"
    assert f"| jellyfish | {gained} | 3.70 | {gained} | 15.04 |" in told
    judged = "| `ramsis, central queue` | `tuned static, dropping`"
    assert f"{judged} | - | 400 | - | - |" in told
    ahead = "| `ramsis` | `tuned static, round robin` | 400 | - | - |"
    assert ahead in told
    assert "## By the nodes" not in told
    assert "| workers |" not in told


@pytest.mark.thorough
def test_on_a_trace_the_tables_follow_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.papers.ramsis_compare.GRID", (190.0, 200.0))
    rows = {row.policy: row for row in on_trace(SMALL, [10.0] * 3 + [150.0] * 3, 1, print)}
    assert 0.6 < rows[CENTRAL].accuracy < 0.8
    assert {row.at for row in rows.values()} == {3}
