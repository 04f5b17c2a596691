"""The profiler's core on a clock that advances only when a batch runs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.measure import (
    Repeats,
    accuracy,
    default_batches,
    fan_outs,
    items_by_child,
    latency_row,
    latency_rows,
    timings,
)
from profiles.measurements import FanOut, Latency, ProfileError


class Machine:
    """A clock and a variant that takes a second per item."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[int] = []

    def run(self, batch: int) -> None:
        self.ran.append(batch)
        self.now += batch

    def clock(self) -> float:
        return self.now


def test_rows_come_by_growing_batch_without_the_warm_up() -> None:
    machine, heard = Machine(), []
    repeats = Repeats(least=2, most=3, budget_s=100.0, warm_up=1)
    rows = latency_rows(machine.run, machine.clock, [4, 1, 4], repeats, heard.append)
    assert rows == (
        Latency(batch=1, repeats=3, mean_s=1, p50_s=1, p90_s=1, p95_s=1, p99_s=1),
        Latency(batch=4, repeats=3, mean_s=4, p50_s=4, p90_s=4, p95_s=4, p99_s=4),
    )
    assert heard == [1, 4]
    assert machine.ran == [1, 1, 1, 1, 4, 4, 4, 4]


@pytest.mark.parametrize(
    ("budget_s", "count"),
    [(0.0, 5), (25.0, 5), (70.0, 7), (10_000.0, 20)],
)
def test_repeats_fill_the_budget_between_least_and_most(budget_s: float, count: int) -> None:
    machine = Machine()
    repeats = Repeats(least=5, most=20, budget_s=budget_s, warm_up=0)
    assert timings(machine.run, machine.clock, 10, repeats) == [10.0] * count


def test_a_quantile_is_a_time_that_was_seen() -> None:
    seconds = [float(n) for n in range(1, 101)]
    assert latency_row(8, seconds[::-1]) == Latency(
        batch=8, repeats=100, mean_s=50.5, p50_s=50, p90_s=90, p95_s=95, p99_s=99
    )


def test_with_few_repeats_p99_is_the_slowest() -> None:
    assert latency_row(1, [1.0, 2.0, 9.0]).p99_s == 9.0


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=50))
def test_any_timings_make_a_valid_row(seconds: list[float]) -> None:
    row = latency_row(1, seconds)
    assert row.p99_s <= max(seconds) + 1e-9
    assert row.p50_s >= min(seconds) - 1e-9


def test_a_batch_that_never_ran_is_refused() -> None:
    with pytest.raises(ProfileError, match="batch 3 was never run; allow one repeat"):
        latency_row(3, [])


@pytest.mark.parametrize(("least", "most"), [(0, 5), (6, 5)])
def test_repeats_check_themselves(least: int, most: int) -> None:
    with pytest.raises(ProfileError, match="the least must be from 1 to the most"):
        Repeats(least=least, most=most)


@pytest.mark.parametrize(
    ("output", "children", "items"),
    [
        ([7, 8], ("read",), {"read": 2}),
        ((), ("read",), {"read": 0}),
        (np.zeros((3, 2)), ("read",), {"read": 3}),
        ({"read": [7]}, ("read",), {"read": 1}),
        ({"cars": [1, 2]}, ("cars", "faces"), {"cars": 2, "faces": 0}),
    ],
)
def test_items_are_counted_by_child(
    output: Any, children: tuple[str, ...], items: dict[str, int]
) -> None:
    assert items_by_child(output, children) == items


@pytest.mark.parametrize(
    ("output", "children", "words"),
    [
        (3, ("read",), "the operator returned int; a task with the children read returns a mapp"),
        ([1], ("cars", "faces"), "returned list; a task with the children cars, faces"),
        ({"dogs": [1]}, ("cars",), "made items for 'dogs', no child of this task"),
    ],
)
def test_an_output_that_cannot_be_counted_is_refused(
    output: Any, children: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ProfileError, match=words):
        items_by_child(output, children)


def test_a_fan_out_is_mean_and_distribution() -> None:
    outputs = [{"cars": [1, 2]}, {"cars": [1], "faces": [5]}, {}, {"cars": [3]}]
    assert fan_outs(outputs, ("cars", "faces")) == {
        "cars": FanOut(1.0, {0: 0.25, 1: 0.5, 2: 0.25}),
        "faces": FanOut(0.25, {0: 0.75, 1: 0.25}),
    }


def test_a_leaf_has_no_fan_out() -> None:
    assert fan_outs(["7", "8"], ()) == {}


def test_a_fan_out_of_nothing_is_refused() -> None:
    with pytest.raises(ProfileError, match="no output was sampled"):
        fan_outs([], ("read",))


def test_accuracy_is_the_mean_score() -> None:
    assert accuracy([1.0, 0.5, 0.0]) == 0.5


@pytest.mark.parametrize(
    ("scores", "words"),
    [([], "no output was scored"), ([1.2], r"task_score returned 1.2; it must be in 0\.\.1")],
)
def test_invalid_scores_are_refused(scores: list[float], words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        accuracy(scores)


@pytest.mark.parametrize(
    ("largest", "batches"), [(1, (1,)), (2, (1, 2)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))]
)
def test_batches_double_up_to_the_largest(largest: int, batches: tuple[int, ...]) -> None:
    assert default_batches(largest) == batches
