from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policies.kairos.query_sizes import SizeDistribution, observed_sizes
from control.policies.kairos.size_watch import (
    NEWEST,
    WINDOW,
    SizeWatch,
    class_of,
    class_start,
    sampled_sizes,
    size_count,
)

MOST = 1000


def lognormal(rng: np.random.Generator, count: int) -> list[int]:
    return [int(s) for s in np.clip(rng.lognormal(5.1, 0.2, count), 1, MOST)]


def normal(rng: np.random.Generator, count: int) -> list[int]:
    return [int(s) for s in np.clip(rng.normal(400, 150, count), 1, MOST)]


class Counted:
    """Count sizes at an ingress and pass the counts to a watch."""

    def __init__(self, watch: SizeWatch) -> None:
        self.watch = watch
        self.counts: dict[str, float] = {}

    def see(self, sizes: list[int]) -> bool:
        """Pass the sizes on by hundreds; return whether the distribution changed."""
        changed = False
        for at in range(0, len(sizes), 100):
            for size in sizes[at : at + 100]:
                name = size_count(size)
                self.counts[name] = self.counts.get(name, 0) + 1
            self.watch.take("ingress-0", 0.0, {"arrived": 1.0, **self.counts})
            changed = self.watch.changed() or changed
        return changed


@given(st.integers(1, 10**9))
def test_a_class_holds_its_sizes_and_is_narrow(size: int) -> None:
    end = class_of(size)
    assert class_start(end) <= size <= end
    assert end <= 1.05 * class_start(end)
    assert class_of(end) == end


def test_sizes_of_the_same_distribution_raise_no_alarm() -> None:
    rng = np.random.default_rng(1)
    made_for = observed_sizes(lognormal(rng, 50_000))
    for seed in range(5):
        watch = Counted(SizeWatch(made_for, MOST))
        assert not watch.see(lognormal(np.random.default_rng(seed), 9_000))
        assert watch.watch.distribution is made_for


def test_classes_of_a_file_are_not_taken_for_its_sizes() -> None:
    """The file has the largest size of classes of ten; queries have every size."""
    rng = np.random.default_rng(1)
    by_ten = observed_sizes([-(-size // 10) * 10 for size in lognormal(rng, 50_000)])
    assert not Counted(SizeWatch(by_ten, MOST)).see(lognormal(rng, 5_000))


def test_other_sizes_are_in_use_after_a_few_hundred_queries() -> None:
    rng = np.random.default_rng(2)
    watch = Counted(SizeWatch(observed_sizes(lognormal(rng, 50_000)), MOST))
    assert not watch.see(lognormal(rng, 3_000))
    assert watch.see(normal(rng, 300))
    watch.see(normal(rng, 12_000))
    found = watch.watch.distribution
    assert found.mean == pytest.approx(400, rel=0.05)
    assert found.sizes[-1] <= MOST


@pytest.mark.parametrize(("large", "expected"), [(550, False), (580, True)])
def test_a_share_of_sizes_that_differs_at_p_below_a_thousandth_is_a_change(
    large: int, expected: bool
) -> None:
    """By the test of Kolmogorov and Smirnov the limit is 0.065 for 1,000 and 10,000 queries."""
    watch = SizeWatch(SizeDistribution((10, 100), (0.5, 0.5)), 100)
    watch.take("ingress-0", 0.0, {"size/10": 1000 - large, "size/100": large})
    assert watch.changed() == expected


def test_too_few_queries_do_not_change_the_sizes() -> None:
    watch = Counted(SizeWatch(SizeDistribution((1,), (1.0,)), MOST))
    assert not watch.see([900] * (NEWEST - 1))
    assert watch.see([900] * 101)


def test_an_ingress_that_restarts_counts_from_nothing() -> None:
    watch = SizeWatch(SizeDistribution((10,), (1.0,)), MOST)
    watch.take("ingress-0", 0.0, {size_count(10): 5_000.0})
    assert not watch.changed()
    watch.take("ingress-0", 1.0, {size_count(900): float(WINDOW)})
    assert not watch.changed()
    watch.take("ingress-0", 1.0, {size_count(900): WINDOW + 100.0})
    assert watch.changed()
    assert watch.distribution.sizes == (class_of(900),)


def test_first_counts_give_the_sizes_if_none_were_known() -> None:
    watch = SizeWatch(SizeDistribution((MOST,), (1.0,)), MOST, guessed=True)
    watch.take("ingress-0", 0.0, {size_count(10): float(NEWEST)})
    assert watch.changed()
    assert watch.distribution.sizes == (class_of(10),)


def test_only_the_newest_incarnation_of_a_node_is_counted_and_kept() -> None:
    watch = SizeWatch(SizeDistribution((MOST,), (1.0,)), MOST, guessed=True)
    for incarnation in range(1, 10):
        watch.take("ingress-0", float(incarnation), {size_count(10): 50.0})
    watch.take("ingress-0", 1.0, {size_count(500): float(NEWEST)})
    assert not watch.changed()
    assert len(watch._counts) == 1  # each restart used to leave the counts of its life
    watch.forget("ingress-0")
    assert watch._counts == {}


def counted(sizes: list[int]) -> dict[str, float]:
    """Return the counts of an ingress that first counted small and then large sizes."""
    counts = Counter(map(size_count, sorted(sizes, key=lambda size: -abs(size - 160))))
    return {name: float(count) for name, count in counts.items()}


def test_a_control_app_that_restarts_goes_on_with_the_sizes_of_an_ingress_that_runs() -> None:
    rng = np.random.default_rng(3)
    watch = SizeWatch(observed_sizes(lognormal(rng, 50_000)), MOST)
    sizes = lognormal(rng, 300_000)
    watch.take("ingress-0", 0.0, counted(sizes))
    assert not watch.changed()
    watch.take("ingress-0", 0.0, counted([*sizes, *lognormal(rng, 100)]))
    assert not watch.changed()


def test_newest_queries_of_a_large_report_have_the_size_distribution_of_all() -> None:
    rng = np.random.default_rng(4)
    watch = SizeWatch(observed_sizes(lognormal(rng, 50_000)), MOST)
    sizes: list[int] = []
    for _ in range(5):
        sizes += lognormal(rng, 4_000)
        watch.take("ingress-0", 0.0, counted(sizes))
        assert not watch.changed()


@given(
    st.dictionaries(st.integers(1, 1_000), st.integers(1, 10**6), min_size=1, max_size=200),
    st.integers(0, WINDOW - NEWEST),
)
def test_any_stretch_of_a_sample_has_the_shares_of_the_whole(
    counts: dict[int, int], at: int
) -> None:
    total = sum(counts.values())
    found = sampled_sizes(counts, WINDOW)
    assert len(found) == min(total, WINDOW)
    stretch = found[at : at + NEWEST]
    for size in counts:
        share = sum(count for each, count in counts.items() if each <= size) / total
        assert sum(each <= size for each in stretch) == pytest.approx(
            share * len(stretch), abs=0.02 * len(stretch) + 8
        )


def test_only_the_newest_incarnation_of_an_ingress_is_remembered() -> None:
    watch = SizeWatch(SizeDistribution((10,), (1.0,)), MOST)
    for restart in range(100):
        watch.take("ingress-0", float(restart), counted([10] * 30))
    assert len(watch._counts) == 1
    assert len(watch._window) == 3_000
