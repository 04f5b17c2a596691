"""control/rollout/hysteresis.py: whether another allocation is worth a change."""

from dataclasses import replace

import pytest

from control.policies import POLICIES
from control.problem.problem import Allocation, Problem, Replicas
from control.rollout.hysteresis import ServedValue, served_value, worth_a_change
from tests.allocation_world import a_problem as given_problem
from tests.allocation_world import an_entry
from tests.control_world import a_pipeline, a_profile

# locate/net does 100 items/s and makes 5 for read each; forest does 1000/s at 0.8, vit 200/s at
# 0.95. Both batches are 4.
LONG = 1000.0


def a_problem(demand_qps: float, devices: int = 6) -> Problem:
    return Problem(
        pipeline=a_pipeline(), policy=POLICIES["loki"].usual, slo_s=0.3, demand_qps=demand_qps,
        devices=("cpu",) * devices, profile=a_profile(),
    )  # fmt: skip


def having(net: int, forest: int = 0, vit: int = 0) -> Allocation:
    counts = {"locate/net": net, "read/forest": forest, "read/vit": vit}
    return Allocation(
        tuple(
            Replicas(task=task, variant=variant, batch=4, count=count)
            for key, count in counts.items()
            if count
            for task, _, variant in [key.partition("/")]
        )
    )


@pytest.mark.parametrize(
    ("allocation", "demand", "served", "accuracy", "devices"),
    [
        (having(1, vit=2), 80.0, 1.0, 0.9 * 0.95, 3),
        (having(1, vit=2), 160.0, 400 / 800, 0.9 * 0.95, 3),
        (having(1, vit=5), 160.0, 100 / 160, 0.9 * 0.95, 6),
        # 500 items/s to read, of which vit takes 200.
        (having(1, forest=1, vit=1), 100.0, 1.0, 0.9 * (0.4 * 0.95 + 0.6 * 0.8), 3),
        (having(1, vit=1), 100.0, 0.4, 0.9 * 0.95, 2),
        (having(1), 10.0, 0.0, 0.0, 1),
    ],
)
def test_an_allocation_is_worth_what_it_makes_of_the_demand(
    allocation: Allocation, demand: float, served: float, accuracy: float, devices: int
) -> None:
    found = served_value(allocation.replicas, a_problem(demand))
    assert found == ServedValue(pytest.approx(served), pytest.approx(accuracy), devices)


def test_observed_fan_out_is_used() -> None:
    problem = replace(a_problem(80.0), multiplicity={("locate/net", "read"): 10.0})
    found = served_value(having(1, vit=2).replicas, problem)
    assert found is not None
    assert found.served == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("demand", "kept", "other", "worth_it"),
    [
        (80.0, having(1, vit=2), having(1, vit=2), False),
        (160.0, having(1, vit=2), having(2, vit=4), True),  # serves more
        (160.0, having(2, vit=4), having(1, vit=2), False),
        (80.0, having(1, forest=1), having(1, vit=2), True),  # more accurate
        (80.0, having(1, vit=2), having(1, forest=1), False),
        (80.0, having(1, forest=1, vit=2), having(1, vit=3), False),  # as accurate
        (38.0, having(2, vit=2), having(1, vit=1), True),  # as good with fewer
        (40.0, having(2, vit=2), having(1, vit=1), False),  # but full: no more queries would fit
    ],
)
def test_a_change_has_to_be_clearly_better(
    demand: float, kept: Allocation, other: Allocation, worth_it: bool
) -> None:
    assert worth_a_change(kept, other, a_problem(demand), LONG) is worth_it


def test_where_neither_serves_every_task_the_newer_one_counts() -> None:
    kept, other = having(1), having(3)
    assert worth_a_change(kept, other, a_problem(200.0), LONG)
    assert not worth_a_change(kept, kept, a_problem(200.0), LONG)
    assert not worth_a_change(having(1, vit=1), other, a_problem(200.0), LONG)


def test_devices_are_given_up_after_an_interval_only() -> None:
    one, two, problem = having(1, vit=1), having(2, vit=2), a_problem(30.0)
    assert not worth_a_change(two, one, problem, 9.9)
    assert worth_a_change(two, one, problem, 10.0)
    assert worth_a_change(one, two, a_problem(60.0), 0.0)


def test_impossible_allocation_is_abandoned() -> None:
    assert worth_a_change(having(2, vit=4), having(1, vit=4), a_problem(50.0, devices=5), 0.0)


def test_allocation_with_more_devices_of_a_kind_than_exist_is_impossible() -> None:
    on_gpu = Replicas(task="locate", variant="net", batch=4, count=2, device="cuda")
    kept = Allocation((on_gpu, *having(0, vit=1).replicas))
    assert worth_a_change(kept, having(1, vit=1), a_problem(10.0), 0.0)


def test_devices_of_each_kind_are_counted_on_their_own() -> None:
    on_gpu = Replicas(task="locate", variant="net", batch=4, count=1, device="cuda")
    on_cpu = Replicas(task="read", variant="vit", batch=4, count=2, device="cpu")
    kept = Allocation((on_gpu, on_cpu))
    mixed = replace(a_problem(10.0), devices=("cuda:0", "cpu", "cpu"))
    assert not worth_a_change(kept, kept, mixed, 0.0)
    assert worth_a_change(kept, kept, replace(mixed, devices=("cpu",) * 3), 0.0)


def test_any_difference_is_a_change_without_a_profile() -> None:
    blind = replace(a_problem(50.0), profile=None)
    assert worth_a_change(having(1, vit=1), having(1, vit=2), blind, 0.0)
    assert not worth_a_change(having(1, vit=1), having(1, vit=1), blind, 0.0)


def slowed(problem: Problem, factor: float) -> Problem:
    assert problem.profile is not None
    return replace(problem, profile=problem.profile.stretched({"cpu": factor}))


def in_batches(allocation: Allocation, batch: int) -> Allocation:
    return Allocation(tuple(replace(each, batch=batch) for each in allocation.replicas))


def test_batches_that_slower_devices_make_late_are_replaced_at_once() -> None:
    """A batch of 4 takes 40 + 20 ms, on devices of a third of the speed 180 ms of a budget of 147;
    a batch of 1 takes a quarter. The kept allocation served as much with as many devices."""
    fours, ones = having(1, vit=2), in_batches(having(1, vit=2), 1)
    before = a_problem(20.0)
    after = slowed(before, 3.0)
    assert served_value(fours.replicas, after) == served_value(ones.replicas, after)
    assert not worth_a_change(fours, ones, before, LONG)
    assert worth_a_change(fours, ones, after, 0.0)


def test_a_late_allocation_is_kept_beside_one_that_is_late_too() -> None:
    fours, twos = having(1, vit=2), in_batches(having(1, vit=2), 2)
    assert not worth_a_change(fours, twos, slowed(a_problem(2.0), 50.0), LONG)


def test_one_late_variant_is_enough() -> None:
    """vit takes 20 ms and forest 4: after net's 40, only forest keeps a budget of 51."""
    both, forest = having(1, forest=1, vit=1), having(1, forest=2)
    assert worth_a_change(both, forest, replace(a_problem(10.0), slo_s=0.105), 0.0)
    assert not worth_a_change(both, forest, a_problem(10.0), LONG)


# ---------------------------------------------------------------------- other pipelines


def of(*names: str, device: str = "", count: int = 1) -> Allocation:
    """Return an allocation of batches of one; ``a/fast`` is a worker of task a."""
    keys = [name.split("/") for name in names]
    return Allocation(
        tuple(
            Replicas(task=task, variant=variant, batch=1, count=count, device=device)
            for task, variant in keys
        )
    )


@pytest.mark.parametrize(("demand", "served"), [(40.0, 100 / 120), (100.0, 0.5), (300.0, 0.25)])
def test_the_items_of_a_child_are_those_of_the_most_accurate_variants_first(
    demand: float, served: float
) -> None:
    """a/good makes 3 items of each of its 50 queries/s, a/poor 1 of each of the rest."""
    entries = [
        an_entry("a", "poor", {1: 10.0}, 0.5, children={"b": 1.0}),
        an_entry("a", "good", {1: 20.0}, 0.9, children={"b": 3.0}),
        an_entry("b", "v", {1: 10.0}),
    ]
    problem = given_problem(entries, {"a": ("b",), "b": ()}, demand=demand)
    found = served_value(of("a/poor", "a/good", "b/v").replicas, problem)
    assert found is not None
    assert found.served == pytest.approx(served)


def test_an_allocation_is_worth_what_its_own_kind_of_device_serves() -> None:
    entries = [an_entry("a", "v", {1: 100.0}), an_entry("a", "v", {1: 10.0}, device="gpu")]
    problem = given_problem(entries, {"a": ()}, demand=50.0, devices=("cpu", "gpu:0"))
    found = [served_value(of("a/v", device=kind).replicas, problem) for kind in ("cpu", "gpu")]
    assert [each.served for each in found if each] == pytest.approx([0.2, 1.0])


@pytest.mark.parametrize(
    ("slow_b_ms", "kept", "branches", "late"),
    [
        # 125 ms for compute. A slow variant of one task with the fastest of the others is in time.
        (100.0, ("a/fast", "a/slow", "b/fast", "b/slow", "c/fast"), "tied", False),
        (100.0, ("a/slow", "b/slow", "c/fast"), "tied", True),
        (100.0, ("a/slow", "a/fast", "b/slow", "c/fast"), "untied", False),  # it may go to c
        (200.0, ("a/fast", "b/slow", "c/fast"), "untied", True),  # no way of b is in time
    ],
)
def test_a_variant_is_late_if_no_way_that_its_items_take_keeps_the_budget(
    slow_b_ms: float, kept: tuple[str, ...], branches: str, late: bool
) -> None:
    ways = {"b": 1.0, "c": 1.0}
    entries = [
        an_entry("a", "fast", {1: 10.0}, children=ways),
        an_entry("a", "slow", {1: 60.0}, children=ways),
        an_entry("b", "fast", {1: 10.0}),
        an_entry("b", "slow", {1: slow_b_ms}),
        an_entry("c", "fast", {1: 10.0}),
    ]
    shape = {"a": ("b", "c"), "b": (), "c": ()}
    problem = given_problem(
        entries, shape, demand=1.0, branches=branches, devices=("cpu",) * 6, compute_share=0.5
    )
    in_time = of("a/fast", "b/fast", "c/fast", count=2)
    assert worth_a_change(of(*kept), in_time, problem, 0.0) is late
