"""control/rollout/target.py: when changed paces require a plan, and how long a target is kept."""

from control.policies import POLICIES
from control.problem.problem import Allocation, Problem, Replicas
from control.rollout.next_plan import Target
from control.rollout.target import PACE, PACES_S, RolloutTarget
from schemas.records import Settings
from tests.control_world import a_pipeline, a_profile


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


def having(count: int) -> Allocation:
    return Allocation(
        tuple(
            Replicas(task=task, variant=variant, batch=4, count=count)
            for task, variant in (("locate", "net"), ("read", "vit"))
        )
    )


def test_devices_are_given_up_an_interval_after_their_allocation_was_taken() -> None:
    loki = POLICIES["loki"].usual
    problem = Problem(
        pipeline=a_pipeline(policies=[loki]), policy=loki, slo_s=0.3, demand_qps=30.0,
        devices=("cpu",) * 6, profile=a_profile(),
    )  # fmt: skip
    settings, target = Settings(policy=loki.name, slo_s=0.3), RolloutTarget()
    for at_s in (100.0, 105.0):  # the second time with the same replicas
        target.take(Target(having(2), settings), at_s)
    found = [target.choose(having(1), problem, settings, at_s) for at_s in (109.9, 110.0)]
    assert [each.allocation.replicas[0].count for each in found] == [2, 1]
