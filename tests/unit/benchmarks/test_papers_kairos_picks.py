from benchmarks.papers.kairos_picks import (
    CASES,
    HEADING,
    PickRow,
    section,
    section_of,
    with_section,
)


def a_row(share: float, case: str = "trace") -> PickRow:
    return PickRow(
        model="rm2", case=case, pick=(1, 0), pick_qps=100 * share, best=(0, 2), best_qps=100.0,
        place=3, evaluated=5,
    )  # fmt: skip


def test_miss_is_bold_and_missing_runs_are_marked_not_run() -> None:
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


def test_the_section_of_a_page_is_kept_where_no_case_has_run() -> None:
    text = section([a_row(0.98)])
    page = with_section("# Page\n\n## One\n\nfirst\n", text)
    assert section_of(page) == text
    assert section_of("# Page\n") == ""
