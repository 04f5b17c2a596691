"""control/rollout/target.py: when changed paces require a plan."""

from control.rollout.target import PACE, PACES_S, RolloutTarget


def asked(*seen: tuple[float, float]) -> list[int]:
    """Return the number of plans requested after each pace of a worker at its time."""
    target = RolloutTarget()
    counts: list[int] = []
    for now, pace in seen:
        target.keeps_pace({"w": pace} if pace else {}, now)
        counts.append(target._moves.count(PACE))
    return counts


def test_slow_worker_triggers_a_plan_at_once() -> None:
    assert asked((5.0, 0), (5.2, 2.0)) == [0, 1]


def test_repeated_pace_changes_trigger_at_most_one_plan_a_second() -> None:
    late_s = 5.0 + PACES_S
    assert asked((5.0, 2.0), (5.2, 0), (5.4, 1.5), (late_s, 1.5)) == [1, 1, 1, 2]


def test_pace_that_recovers_within_a_second_triggers_no_plan() -> None:
    assert asked((5.0, 2.0), (5.4, 4.0), (5.0 + PACES_S, 2.0)) == [1, 1, 1]
