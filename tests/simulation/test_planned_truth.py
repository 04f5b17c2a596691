"""The search on the shipped recording finds a plan near the cheapest of all configurations, by the
recorded steps.

After a change of the search: HEADRACE_RECORD=1 pytest tests/simulation/test_planned_truth.py, and
review the difference; docs/results/planning.md has figures of such searches.
"""

import os
from functools import lru_cache
from pathlib import Path

import pytest

from benchmarks.planned_search import NEAR, SPARE_USD_PER_H, cheapest
from headrace.config.pipeline_file import read_pipeline_file, search_space
from headrace.planning.recorded_truth import read_truth
from headrace.planning.search_report import as_text
from headrace.planning.session_search import Asked, Found, RecordedProfiles, searched

GOLDEN = Path(__file__).parents[1] / "golden" / "recorded_searches.txt"
POSTCODE = Path(__file__).parents[2] / "examples" / "postcode"
FILE = read_pipeline_file(POSTCODE / "planned.yaml")
TRUTH = read_truth(POSTCODE / "planned-truth.json", search_space(FILE).space)


def test_the_recording_has_every_configuration_and_three_hundred_samples() -> None:
    assert len(TRUTH.scores) == 864
    assert {len(scores) for scores in TRUTH.scores} == {300}


SLOS = [(0.9, 0.12), (0.9, 0.04), (0.96, 0.045)]


@lru_cache
def found(accuracy: float, latency_s: float) -> Found:
    asked = Asked(
        accuracy=accuracy, latency_s=latency_s, usd_per_h=float("inf"), deadline_s=60.0,
        spend_usd=0.0,
    )  # fmt: skip
    return searched(FILE, RecordedProfiles(search_space(FILE).space, TRUTH), asked)


@pytest.mark.parametrize(("accuracy", "latency_s"), SLOS)
def test_the_plan_found_costs_about_as_much_as_the_cheapest(
    accuracy: float, latency_s: float
) -> None:
    best = found(accuracy, latency_s).search.best
    assert best is not None
    assert best.usd_per_h <= NEAR * cheapest(FILE, TRUTH, accuracy, latency_s) + SPARE_USD_PER_H


def test_searches_take_the_recorded_steps() -> None:
    text = "\n\n".join(as_text(found(*slo)) for slo in SLOS) + "\n"
    if os.environ.get("HEADRACE_RECORD"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
