"""Emulated variants: randomness comes from the argument, and means match the profile."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.models.emulated import Emulated, latency_knots
from profiles.measurements import Entry, FanOut, Latency, ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Variant

NET = Variant(task="locate", name="net", operator="shop.locate:Net")
READ = Variant(task="read", name="vit", operator="shop.read:Vit")
FAN_OUTS = {"read": FanOut(4.4, {3: 0.1, 4: 0.4, 5: 0.5}), "sort": FanOut(0.3, {0: 0.7, 1: 0.3})}


def a_row(batch: int, p50_s: float, mean_s: float) -> Latency:
    return Latency(
        batch=batch,
        repeats=50,
        mean_s=mean_s,
        p50_s=p50_s,
        p90_s=1.2 * p50_s,
        p95_s=1.5 * p50_s,
        p99_s=2.0 * p50_s,
    )


def an_entry(variant: Variant, children: dict[str, FanOut]) -> Entry:
    return Entry(
        task=variant.task,
        variant=variant.name,
        device="cuda:0",
        operator=variant.operator,
        weights_sha256="",
        load_s=1.5,
        memory_bytes=0,
        accuracy=0.8,
        children=children,
        latency=(a_row(1, 0.010, 0.0101), a_row(8, 0.040, 0.0404)),
    )


TABLE = ProfileTable("p", (an_entry(NET, FAN_OUTS), an_entry(READ, {})))


def net(rng: np.random.Generator | None, dilate: float = 1.0) -> Emulated:
    return Emulated(TABLE, NET, ("read", "sort"), rng, dilate)


def test_without_chance_the_latency_is_the_median() -> None:
    assert net(None).latency_s(8) == pytest.approx(0.040)


def test_dilation_stretches_latency_and_load() -> None:
    slow = net(None, dilate=4.0)
    assert (slow.latency_s(1), slow.load_s) == (pytest.approx(0.040), pytest.approx(6.0))


def test_drawn_latencies_have_the_measured_quantiles_and_mean() -> None:
    emulated = net(np.random.default_rng(1))
    drawn = np.array([emulated.latency_s(8) for _ in range(20_000)])
    assert np.quantile(drawn, (0.5, 0.9, 0.95)) == pytest.approx([0.040, 0.048, 0.060], rel=0.02)
    assert drawn.mean() == pytest.approx(0.0404, rel=0.01)
    assert drawn.max() <= 0.080


def test_the_same_seed_draws_the_same() -> None:
    def story() -> list[Any]:
        emulated = net(np.random.default_rng(7))
        return [emulated.latency_s(3), emulated.predict([None] * 5), emulated.latency_s(8)]

    assert story() == story()


def test_fan_out_is_drawn_from_the_counts() -> None:
    outputs = net(np.random.default_rng(2)).predict([b"image"] * 10_000)
    read = [len(output["read"]) for output in outputs]
    assert set(read) == {3, 4, 5}
    assert np.mean(read) == pytest.approx(4.4, abs=0.03)
    assert np.mean([len(output["sort"]) for output in outputs]) == pytest.approx(0.3, abs=0.03)


def test_without_chance_the_likeliest_fan_out_is_made() -> None:
    assert net(None).predict([b"", b""]) == [{"read": [None] * 5, "sort": []}] * 2


def test_a_leaf_is_right_as_often_as_its_accuracy() -> None:
    outputs = Emulated(TABLE, READ, (), np.random.default_rng(3)).predict([0] * 10_000)
    assert {type(output) for output in outputs} == {bool}
    assert np.mean(outputs) == pytest.approx(0.8, abs=0.02)


def test_without_chance_a_leaf_does_what_it_mostly_does() -> None:
    assert Emulated(TABLE, READ, (), None).predict([0, 1]) == [True] * 2


def test_an_empty_batch_has_no_outputs() -> None:
    assert net(np.random.default_rng(0)).predict([]) == []


def test_a_batch_beyond_the_profile_is_refused() -> None:
    with pytest.raises(ProfileError, match="batches of 1 to 8, not 9"):
        net(None).latency_s(9)


def test_a_variant_without_a_profile_is_refused() -> None:
    ghost = Variant(task="read", name="ghost", operator="a:B")
    with pytest.raises(ProfileError, match="no profile of read/ghost"):
        Emulated(TABLE, ghost, (), None)


def test_a_child_without_a_fan_out_is_refused() -> None:
    with pytest.raises(ProfileError, match="no fan-out to 'weigh'"):
        Emulated(TABLE, NET, ("weigh",), None)


def test_a_few_very_slow_runs_keep_their_part_of_the_mean() -> None:
    rows = (a_row(1, 0.010, 0.030),)
    entry = dataclasses.replace(an_entry(READ, {}), latency=rows)
    emulated = Emulated(ProfileTable("p", (entry,)), READ, (), np.random.default_rng(4))
    drawn = np.array([emulated.latency_s(1) for _ in range(100_000)])
    assert drawn.mean() == pytest.approx(0.030, rel=0.1)
    assert np.quantile(drawn, (0.5, 0.95)) == pytest.approx([0.010, 0.015], rel=0.02)


@given(st.floats(1e-4, 1.0), st.floats(0.1, 10.0), st.integers(1, 8))
def test_knots_grow_whatever_the_mean_is(p50_s: float, skew: float, batch: int) -> None:
    rows = (a_row(1, p50_s, p50_s * skew), a_row(8, 2 * p50_s, p50_s))
    entry = dataclasses.replace(an_entry(READ, {}), latency=rows)
    knots = latency_knots(ProfileTable("p", (entry,)), entry, batch)
    assert knots == sorted(knots)
    assert knots[0] >= knots[1] / 2 > 0


HALVES = {"read": FanOut(1.0, {0: 0.5, 1: 0.5}), "sort": FanOut(1.0, {0: 0.5, 2: 0.4, 3: 0.1})}
FORK = ProfileTable("p", (an_entry(NET, HALVES), an_entry(READ, {})))


def test_untied_items_go_to_each_child_as_often_as_profiled(
    rng: np.random.Generator,
) -> None:
    outputs = Emulated(FORK, NET, ("read", "sort"), rng, one_of=True).predict([b""] * 4000)
    made = [(len(each["read"]), len(each["sort"])) for each in outputs]
    assert set(made) == {(1, 0), (0, 2), (0, 3)}
    assert made.count((1, 0)) / 4000 == pytest.approx(0.5, abs=0.04)
    assert made.count((0, 2)) / 4000 == pytest.approx(0.4, abs=0.04)


def test_untied_without_chance_the_first_of_the_likeliest_children_is_taken() -> None:
    fork = Emulated(FORK, NET, ("read", "sort"), None, one_of=True)
    assert fork.predict([b""] * 2) == [{"read": [None], "sort": []}] * 2
