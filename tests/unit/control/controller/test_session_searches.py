"""How far ahead the searches of sessions ask for samples."""

from control.controller.session_searches import blocks_ahead
from control.policies.compass.search.search_run import AHEAD
from control.problem.sample_sets import recent_set


def test_samples_that_are_there_are_asked_for_ahead_and_recent_inputs_as_they_are_needed() -> None:
    assert blocks_ahead("workload@0", 1) == AHEAD
    assert blocks_ahead("workload@0", 3) == 3 * AHEAD
    assert blocks_ahead(recent_set("s", 12.0), 3) == 1
