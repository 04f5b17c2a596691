"""The search on the shipped recording finds a plan near the cheapest of all configurations."""

from pathlib import Path

import pytest

from benchmarks.planned_search import NEAR, SPARE_USD_PER_H, cheapest
from headrace.config.pipeline_file import read_pipeline_file, search_space
from headrace.planning.recorded_truth import read_truth
from headrace.planning.session_search import Asked, RecordedProfiles, searched

POSTCODE = Path(__file__).parents[2] / "examples" / "postcode"
FILE = read_pipeline_file(POSTCODE / "planned.yaml")
TRUTH = read_truth(POSTCODE / "planned-truth.json", search_space(FILE).space)


def test_the_recording_has_every_configuration_and_three_hundred_samples() -> None:
    assert len(TRUTH.scores) == 864
    assert {len(scores) for scores in TRUTH.scores} == {300}


@pytest.mark.parametrize(("accuracy", "latency_s"), [(0.9, 0.12), (0.9, 0.04), (0.96, 0.045)])
def test_the_plan_found_costs_about_as_much_as_the_cheapest(
    accuracy: float, latency_s: float
) -> None:
    source = RecordedProfiles(search_space(FILE).space, TRUTH)
    asked = Asked(
        accuracy=accuracy, latency_s=latency_s, usd_per_h=float("inf"), deadline_s=60.0,
        spend_usd=0.0,
    )  # fmt: skip
    best = searched(FILE, source, asked).search.best
    assert best is not None
    assert best.usd_per_h <= NEAR * cheapest(FILE, TRUTH, accuracy, latency_s) + SPARE_USD_PER_H
