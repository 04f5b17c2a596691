"""Arriving and leaving sessions over modelled plans: service, abandonment and cost."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.papers.compass_online import (
    SECONDS,
    TICK_S,
    Arrival,
    Gpus,
    Hour,
    Played,
    RepackedHour,
    ReplannedHour,
    arrivals,
    fitting,
    main,
    mean_cost,
    remaining,
)
from benchmarks.papers.compass_online_page import ORACLE, OURS, SLOW, WHOLE, factor, page
from benchmarks.papers.compass_plans import Planned
from benchmarks.row_file import RowFile
from control.policies.compass.schedule.instance import PlanItem, PlanOption

PRICES = {"cloud": 4.0}
ROW = Played(
    app="SR", pace=1.0, method="compass, 5 s", seed=100, load=1.0, commit="c0ffee", sessions=10,
    planned=1.0, served=0.9, complying=0.8, goodput=12.0, usd_per_h=1.0, ours_usd_per_h=1.0,
    least_usd_per_h=0.5, common=0.5,
)  # fmt: skip


def known(*quarters: int, seconds: float = 0.0, pool: str = "") -> Planned:
    """Return a session with one plan, which takes these quarters of cloud GPUs."""
    items = tuple(PlanItem("cloud", each, *([pool] if pool else [])) for each in quarters)
    plans = (PlanOption(items, 1.0),)
    return Planned(seconds=seconds, plans=plans, complies=(True,), at_edge=(False,))


NOTHING = Planned(seconds=5.0, plans=(), complies=(), at_edge=())


def served(
    gpus: int, plans: list[Planned], coming: list[Arrival], kind: type[Hour] = Hour
) -> list[int]:
    hour = kind(coming, plans, Gpus({"cloud": gpus}, PRICES))
    hour.play()
    return sorted(hour.chosen)


def test_sessions_are_served_while_gpus_are_free_and_others_follow_when_they_leave() -> None:
    coming = [Arrival(10.0, 0, 8.0), Arrival(10.0, 0, 90.0), Arrival(11.0, 0, 5.0)]
    assert served(1, [known(2)], coming) == [0, 1, 2]  # the third starts after eight seconds
    late = [Arrival(10.0, 0, 90.0), Arrival(10.0, 0, 90.0), Arrival(11.0, 0, 5.0)]
    assert served(1, [known(2)], late) == [0, 1]  # it gives up


def test_a_session_is_served_once_it_is_planned_and_one_without_a_plan_never() -> None:
    coming = [Arrival(SECONDS - 4 * TICK_S, 0, 1.0), Arrival(1.0, 1, 1.0)]
    assert served(1, [known(4, seconds=1.0), NOTHING], coming) == [0]
    assert served(1, [known(4, seconds=60.0), NOTHING], coming) == []


def test_seats_of_different_models_share_no_gpu() -> None:
    coming = [Arrival(1.0, 0, 900.0), Arrival(1.0, 1, 900.0)]
    plans = [known(1, pool="m"), known(1, pool="n")]
    assert len(served(1, plans, coming)) == 1
    assert served(2, plans, coming) == [0, 1]


def test_occupancy_is_of_gpus_that_are_taken_and_of_sessions_that_run_on_their_device() -> None:
    half = SECONDS / 2
    here = replace(known(1), at_edge=(True,))
    hour = Hour(
        [Arrival(0.0, 0, half), Arrival(0.0, 1, half)], [known(2), here], Gpus({"cloud": 1}, PRICES)
    )
    hour.play()
    assert hour.occupancy["cloud"] == pytest.approx(0.75 / 2, abs=0.01)
    assert hour.occupancy["edge"] == pytest.approx(0.5 / 2, abs=0.01)


def test_a_session_that_needs_a_whole_gpu_is_served_if_others_are_repacked() -> None:
    long_s, half, whole = SECONDS, 0, 1
    coming = [
        Arrival(0.0, half, long_s), Arrival(0.0, half, 9.0), Arrival(0.0, half, long_s),
        Arrival(11.0, whole, 60.0),
    ]  # fmt: skip
    plans = [known(2), known(4)]
    assert served(2, plans, coming) == [0, 1, 2]  # a half of each GPU is taken
    assert served(2, plans, coming, RepackedHour) == [0, 1, 2, 3]


def test_a_session_is_served_if_a_running_one_changes_its_plan() -> None:
    def either(*tiers: str) -> Planned:
        plans = tuple(PlanOption((PlanItem(tier, 4),), 1.0) for tier in tiers)
        return Planned(
            seconds=0.0, plans=plans, complies=(True,) * len(plans), at_edge=(False,) * len(plans)
        )

    coming = [Arrival(0.0, 0, SECONDS), Arrival(9.0, 1, 60.0)]
    plans = [either("cloud", "near"), either("cloud")]

    def chosen(kind: type[Hour]) -> dict[int, int]:
        hour = kind(coming, plans, Gpus({"cloud": 1, "near": 1}, {"cloud": 4.0, "near": 4.0}))
        hour.play()
        return hour.chosen

    assert chosen(Hour) == {0: 0}
    assert chosen(ReplannedHour) == {0: 1, 1: 0}


def test_load_one_fills_the_cluster() -> None:
    assert fitting([known(1), NOTHING, known(3)], {"cloud": 3}, PRICES) == 6
    coming = arrivals(0.1, 30.0, 4, 7)
    assert coming == arrivals(0.1, 30.0, 4, 7)
    assert 250 < len(coming) < 470
    assert all(0 <= each.query < 4 for each in coming)


def test_cost_counts_whole_gpus_over_the_hour() -> None:
    coming = [Arrival(0.0, 0, 2 * SECONDS), Arrival(0.0, 0, SECONDS / 2)]
    cost = mean_cost(coming, [known(3)], PRICES)
    assert abs(cost - (4.0 + 2.0)) < 0.1


def test_the_page_has_factors_over_both_baselines() -> None:
    rows = [
        replace(ROW, pace=pace, method=method, goodput=goodput, usd_per_h=usd)
        for pace, more in ((1.0, 1.0), (4.0, 0.5))
        for method, goodput, usd in (
            ("all plans known", 18.0, 1.0),
            ("compass, 5 s", 12.0, 1.0), ("vulcan-like, 15 s", 4.0 * more, 5.0),
            ("videostorm-like, 15 s", 3.0 * more, 2.0),
            ("vulcan-like, 15 s, whole GPUs", 5.0, 5.0),
            ("videostorm-like, 15 s, whole GPUs", 6.0, 4.0),
        )
    ]  # fmt: skip
    text = page(rows, 12)
    assert "| vulcan-like, 15 s | 3.00x (3.00 to 3.00) |" in text
    assert "| videostorm-like, 15 s | 4.00x (4.00 to 4.00) |" in text
    assert "| vulcan-like, 15 s | 5.00x (5.00 to 5.00) |" in text
    assert "required: 2.4x.\n" in text
    assert "| compass, 5 s; baselines with our shares | 3.00x |" in text
    assert "| compass, 5 s; baselines on whole GPUs | 2.00x **missed** |" in text
    assert "required: 3x.\n" in text
    assert "| compass, 5 s; baselines with our shares | 2.00x **missed** |" in text
    assert "| all plans known; baselines with our shares | 4.50x |" in text  # 18 over 4 goodput
    assert "| all plans known; baselines with our shares | 4.00x |" in text  # 2 $/h over 0.5
    assert "| vulcan-like, 15 s | 6.00x (6.00 to 6.00) |" in text  # at the papers' pace
    assert "each modelled second of planning: SR 4.0." in text
    none = page(
        [replace(row, goodput=0.0, common=0.0) for row in rows if "like" in row.method]
        + [row for row in rows if "like" not in row.method],
        12,
    )
    assert "| vulcan-like, 15 s | baseline serves none |" in none
    assert "baselines with our shares | unknown (a baseline has no plan) |" in none


def test_a_factor_is_of_the_means_over_the_seeds() -> None:
    assert factor([(10.0, 1.0), (10.0, 9.0)]) == 2.0  # the mean of the seeds' factors is 5.6
    assert factor([(10.0, 0.0), (10.0, 5.0)]) == 4.0
    assert factor([(10.0, 0.0)]) == float("inf")
    assert factor([]) is None


def test_a_baseline_that_serves_sessions_of_some_seeds_serves_some() -> None:
    def row(method: str, seed: int, goodput: float, ours_usd_per_h: float) -> Played:
        return replace(
            ROW, method=method, seed=seed, goodput=goodput, usd_per_h=3.0,
            ours_usd_per_h=ours_usd_per_h,
        )  # fmt: skip

    methods = ("vulcan-like, 15 s", "videostorm-like, 15 s")
    rows = [row("compass, 5 s", seed, 12.0, 1.0) for seed in (0, 1)]
    rows += [row("all plans known", seed, 12.0, 1.0) for seed in (0, 1)]
    for method in (*methods, *(f"{each}, whole GPUs" for each in methods)):
        rows += [row(method, 0, 0.0, 0.0), row(method, 1, 4.0, 2.0)]
    text = page(rows, 12)
    assert "| vulcan-like, 15 s | 6.00x (3.00 to inf) |" in text  # of goodput
    assert "| vulcan-like, 15 s | 3.00x (1.50 to inf) |" in text  # of cost, where ours may be 0
    assert "serves none" not in text


def test_a_folder_without_rows_leaves_the_page_as_it_is(tmp_path: Path) -> None:
    shown = tmp_path / "page.md"
    shown.write_text("as it was")
    with pytest.raises(SystemExit, match="leave out --again"):
        main([str(tmp_path), str(tmp_path), "--again", "--page", str(shown)])
    assert shown.read_text() == "as it was"


def test_an_interrupted_run_resumes_at_the_hours_that_it_lacks(tmp_path: Path) -> None:
    rows = RowFile(tmp_path / "online.jsonl", Played)
    all_hours = [(100, 1.0, "SR"), (100, 1.0, "VT"), (101, 1.0, "SR"), (101, 1.0, "VT")]
    assert remaining(rows.read(), [100, 101], [1.0], ["SR", "VT"]) == all_hours
    rows.append(ROW)
    assert remaining(rows.read(), [100, 101], [1.0], ["SR", "VT"]) == all_hours[1:]


def test_the_page_names_the_commits_of_its_rows(tmp_path: Path) -> None:
    rows = RowFile(tmp_path / "online.jsonl", Played)
    for seed, name in ((100, "c0ffee"), (101, "decade")):
        for method in (OURS, ORACLE, *SLOW, *(each + WHOLE for each in SLOW)):
            rows.append(replace(ROW, seed=seed, commit=name, method=method))
    shown = tmp_path / "page.md"
    main([str(tmp_path), str(tmp_path), "--again", "--page", str(shown)])
    assert "played at commit c0ffee and decade" in shown.read_text()
