import math

import pytest

from benchmarks.papers.kairos_picks import (
    CASES,
    HEADING,
    PickRow,
    normal_sizes,
    section,
    with_section,
)
from control.policies.kairos.query_sizes import parsed


def a_row(share: float, case: str = "trace") -> PickRow:
    return PickRow(
        model="rm2", case=case, pick=(1, 0), pick_qps=100 * share, best=(0, 2), best_qps=100.0,
        place=3, evaluated=5,
    )  # fmt: skip


def test_a_normal_distribution_of_sizes_has_its_mean_and_deviation() -> None:
    sizes = parsed(normal_sizes(400, 150), "normal")
    assert math.fsum(sizes.probabilities) == pytest.approx(1.0)
    assert sizes.sizes[-1] == 1000
    # Sizes are rounded up to classes of 10, and the left tail is cut off.
    assert sizes.mean == pytest.approx(406, abs=3)


def test_a_miss_is_bold_and_what_was_not_run_says_so() -> None:
    text = section([a_row(0.98), a_row(0.9, "N(256,32)")])
    assert "| trace | 0.980 on 1+0, best 0+2 (place 3, 5) | not run" in text
    assert "| N(256,32) | **0.900** on" in text
    assert all(f"| {case} |" in text for case in CASES)


def test_the_section_replaces_itself_and_leaves_the_others() -> None:
    page = "# Page\n\n## One\n\nfirst\n"
    once = with_section(page, section([a_row(0.98)]))
    assert once.startswith(page)
    again = with_section(once + "\n## Last\n\nend\n", section([a_row(0.9)]))
    assert again.count(HEADING) == 1
    assert "**0.900**" in again
    assert "0.980" not in again
    assert again.endswith("\n## Last\n\nend\n")
