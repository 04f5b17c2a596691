"""The overload page: the share of its best goodput that a policy keeps."""

import pytest

from benchmarks.overload import Row, kept, page


def rows(policy: str, factor: float, *goodputs: tuple[float, float, float]) -> list[Row]:
    """Return rows of a policy with the goodputs of each seed at 1, 1.5 and 3 times the capacity."""
    return [
        Row(policy=policy, factor=factor, load=load, seed=seed, seconds=30.0, commit="abc",
            goodput_qps=found)
        for seed, each in enumerate(goodputs)
        for load, found in zip((1.0, 1.5, 3.0), each, strict=True)
    ]  # fmt: skip


def test_the_share_is_the_least_goodput_beyond_capacity_over_the_best_at_any_load() -> None:
    played = rows("static", 1.0, (100.0, 110.0, 88.0), (100.0, 100.0, 90.0))
    found = kept(played, "static", 1.0)
    assert [each.value for each in found.goodputs] == [100.0, 105.0, 89.0]
    assert found.share.value == pytest.approx((88 / 110 + 90 / 100) / 2)
    assert found.missed


def test_incomplete_seed_is_excluded() -> None:
    played = rows("static", 1.0, (100.0, 100.0, 95.0), (50.0, 50.0, 10.0))[:-1]
    assert kept(played, "static", 1.0).share.count == 1


def test_page_marks_missed_targets() -> None:
    played = [
        *rows("static", 1.0, (100.0, 100.0, 95.0)), *rows("static", 1.3, (80.0, 70.0, 40.0)),
    ]  # fmt: skip
    text = page(played)
    assert "| `static` | 100.0 ± 0.0 | 100.0 ± 0.0 | 95.0 ± 0.0 | 0.950 ± 0.000 | 1 |" in text
    assert "| **0.500 ± 0.000** | 1 |" in text
    assert "Commit abc, " in text


def test_page_marks_what_is_met_by_the_mean_only() -> None:
    played = [
        *rows("static", 1.0, (100.0, 100.0, 100.0), (100.0, 100.0, 84.0)),
        *rows("static", 1.3, (100.0, 100.0, 99.0), (100.0, 100.0, 99.0)),
    ]  # fmt: skip
    found = kept(played, "static", 1.0)
    assert (found.missed, found.unsure) == (False, True)
    assert not kept(played, "static", 1.3).unsure
    (line, sure) = [line for line in page(played).splitlines() if line.startswith("| `static`")]
    assert line.endswith(" * | 2 |")
    assert "*" not in sure
