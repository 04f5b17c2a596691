"""The plans at the end of searches over the modelled benchmark."""

from pathlib import Path

from benchmarks.papers.compass_final_plans import Ended, FinalPlans, ended, played, table
from benchmarks.papers.compass_model import applications, draw
from tests.unit.benchmarks.test_papers_compass import data as data  # a fixture


def an_end(usd_per_h: float, *, complies: bool = True) -> Ended:
    return Ended(
        complies=complies, usd_per_h=usd_per_h, least_usd_per_h=1.0, first_s=0.5, seconds=2.0
    )


def test_shares_and_costs_are_of_the_searches_with_a_plan() -> None:
    ends = [an_end(1.0), None, an_end(1.5, complies=False)]
    rows = [
        FinalPlans(app="SR", seed=7, number=number, sampled=an_end(1.0), confirmed=end)
        for number, end in enumerate(ends)
    ]
    assert list(table(rows))[2:] == [
        "| SR | sampled | 3 | 0 (0.0 %) | 1.000 | 0.50 s | 2.00 s |",
        "| SR | confirmed | 2 | 1 (50.0 %) | 1.250 | 0.50 s | 2.00 s |",
        "| all | sampled | 3 | 0 (0.0 %) | 1.000 | 0.50 s | 2.00 s |",
        "| all | confirmed | 2 | 1 (50.0 %) | 1.250 | 0.50 s | 2.00 s |",
    ]


def test_a_seed_whose_queries_are_known_is_not_played_again(data: Path) -> None:
    app = applications(data)["SR"]
    known = [FinalPlans(app="SR", seed=7, number=0, sampled=None, confirmed=None)]
    assert list(played("SR", app, 7, 1, known)) == []


def test_a_search_to_the_end_has_its_first_plan_before(data: Path) -> None:
    query = draw(applications(data)["SR"], 1, 3)[0]
    found = ended(query, (), confirms=True)
    assert found is not None
    assert 0.0 < found.first_s <= found.seconds
