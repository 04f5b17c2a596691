"""What a search learns over the modelled benchmark: the studies that its tables summarise."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.compass_compare import Method, searched
from benchmarks.papers.compass_learning import (
    LOOKS,
    latency_errors,
    tables,
    thermometer,
    to_first_plan,
    wrong,
)
from benchmarks.papers.compass_model import DrawnQuery, applications, draw
from control.policies.compass.search.sequential_test import StopRule
from tests.unit.benchmarks.test_papers_compass import data as data  # a fixture


@pytest.fixture(scope="module")
def query(data: Path) -> DrawnQuery:
    return draw(applications(data)["SR"], 1, 3)[0]


def test_ordered_options_are_as_far_apart_as_their_places() -> None:
    codes = thermometer(np.array([[0, 0], [1, 0], [3, 1]]))
    apart = (codes[:, None] != codes[None]).sum(axis=2)
    assert apart.tolist() == [[0, 1, 4], [1, 0, 3], [4, 3, 0]]


def test_a_search_without_history_is_its_own_predictor_from_the_first_step(
    query: DrawnQuery,
) -> None:
    alone = to_first_plan(query, ())
    assert set(alone.origins) == {"own"}
    assert alone.switched == 1
    rule = StopRule(most=query.app.most_samples)
    row, past = searched(query, Method(), (), rule)
    assert (len(alone.tests), alone.complies) == (row.steps, not row.false)
    assert to_first_plan(query, [past]).origins[0] == "committee"


def test_every_other_past_search_is_made_wrong(query: DrawnQuery) -> None:
    rule = StopRule(most=query.app.most_samples)
    history = [searched(query, Method(), (), rule)[1]] * 4
    for number, past in enumerate(wrong(query, history, 0.3)):
        gaps = np.abs(past.accuracy / history[0].accuracy - 1)
        assert gaps == pytest.approx(0.3 if number % 2 else 0.0)


def test_latencies_are_predicted_better_with_more_profiles(query: DrawnQuery) -> None:
    found = latency_errors(query)
    assert {step for _, step in found} <= set(LOOKS)
    assert all(0 <= error < 2 for error in found.values())


@pytest.mark.thorough
def test_tables_have_a_row_for_each_application(data: Path) -> None:
    apps = applications(data)
    made = list(tables(apps, 2))
    assert len(made) == 4
    assert all(len(each.splitlines()) == 2 + len(apps) for each in made)
