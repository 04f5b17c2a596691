"""control/estimation/slow_workers.py: workers that take longer than others of their kind."""

from collections.abc import Mapping
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.estimation.slow_workers import SLOW, SlowWorkers, _median_of_others
from control.estimation.slowdown import FEWEST, NONE_RAN, Ran
from schemas.records import Report


def report(node: str, variant: str) -> Report:
    return Report(
        node=node, role="worker", pipeline="p", epoch=1, incarnation=0.0, sent_s=1.0,
        state="ready", device="cpu", task="read", variant=variant,
    )  # fmt: skip


def paces(*stretches: tuple[str, float]) -> Mapping[str, float]:
    """Return reports of workers w0, w1, ... by variant and seconds per planned second."""
    workers = SlowWorkers()
    for number, (variant, stretch) in enumerate(stretches):
        workers.observe(report(f"w{number}", variant), Ran(FEWEST, FEWEST, FEWEST * stretch))
    return workers.paces()


def test_a_worker_that_takes_longer_than_others_of_its_variant_is_slow() -> None:
    assert paces(("small", 1.0), ("small", 3.0), ("small", 1.0)) == {"w1": 3.0}


def test_a_profile_that_is_wrong_about_a_variant_makes_no_worker_slow() -> None:
    assert paces(("cheap", 0.1), ("cheap", 0.1), ("dear", 1.0)) == {}
    assert paces(("cheap", 0.1), ("cheap", 0.1), ("dear", 1.0), ("dear", 1.1)) == {}


def test_a_slow_worker_shows_among_two_of_a_variant() -> None:
    assert paces(("cheap", 1.0), ("cheap", 1.0), ("dear", 1.0), ("dear", 2.0)) == {"w3": 2.0}


def test_slow_worker_is_not_identified_among_two_workers() -> None:
    assert paces(("small", 1.0), ("small", 3.0)) == {}


def by_reports(*stretches: float) -> Mapping[str, float]:
    """Return the slow ones of three workers of one variant with a batch per report; the last worker
    takes ``stretches`` times the planned duration."""
    workers = SlowWorkers()
    for stretch in stretches:
        for number, each in enumerate((1.0, 1.0, stretch)):
            workers.observe(report(f"w{number}", "small"), Ran(1.0, 1.0, each))
    return workers.paces()


def test_few_large_batches_show_a_slow_worker_by_the_shortest_of_five_reports() -> None:
    assert by_reports(3.0, 4.0, 2.0, 3.0) == {}
    assert by_reports(3.0, 4.0, 2.0, 3.0, 3.0) == {"w2": 2.0}


def test_a_stall_in_four_of_five_reports_makes_no_worker_slow() -> None:
    assert by_reports(30.0, 30.0, 1.0, 30.0, 30.0, 30.0, 30.0) == {}


def test_slow_worker_stays_slow_after_a_variant_change_until_its_batches_differ() -> None:
    workers = SlowWorkers()
    for number, stretch in enumerate((1.0, 1.0, 3.0)):
        workers.observe(report(f"w{number}", "small"), Ran(FEWEST, FEWEST, FEWEST * stretch))
    assert workers.paces() == {"w2": 3.0}
    workers.observe(report("w2", "large"), Ran(1.0, 1.0, 1.0))
    assert workers.paces() == {"w2": 3.0}
    workers.observe(report("w2", "large"), Ran(FEWEST, FEWEST, FEWEST * 5.0))
    assert workers.paces() == {"w2": 3.0}  # the only one of its variant: its profile may be wrong
    for _ in range(40):
        workers.observe(report("w2", "large"), Ran(FEWEST, FEWEST, FEWEST))
    assert workers.paces() == {}


@given(st.lists(st.floats(0.1, 10.0), min_size=3, max_size=8))
def test_a_slow_worker_takes_as_much_longer_than_the_median(stretches: list[float]) -> None:
    for name, pace in paces(*(("small", each) for each in stretches)).items():
        assert pace >= SLOW
        assert stretches[int(name[1:])] / median(stretches) >= pace - 1e-9


@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=9), st.data())
def test_the_median_of_the_others(numbers: list[float], data: st.DataObject) -> None:
    own = data.draw(st.sampled_from(numbers))
    others = [*numbers]
    others.remove(own)
    assert _median_of_others(sorted(numbers), own) == pytest.approx(median(others))


def test_a_worker_that_is_lost_is_no_measure_for_others_until_it_reports_again() -> None:
    workers = SlowWorkers()
    for number, stretch in enumerate((1.0, 1.0, 2.0, 2.0, 2.0)):
        workers.observe(report(f"w{number}", "small"), Ran(FEWEST, FEWEST, FEWEST * stretch))
    workers.observe(report("w5", "small"), Ran(FEWEST, FEWEST, FEWEST * 4.0))
    assert workers.paces() == {"w5": 2.0}
    workers.lose(["w2", "w3", "w4", "unknown"])
    assert workers.paces() == {"w5": 4.0}
    workers.lose(["w5"])
    assert workers.paces() == {}
    workers.observe(report("w5", "small"), NONE_RAN)
    assert workers.paces() == {"w5": 4.0}
