"""The outcomes of a load as text."""

import pytest

from headrace.load.load_result import LoadResult, load_text
from headrace.results.tally import Sent, tally


@pytest.mark.parametrize(("behind_ms", "said"), [(4200.0, True), (20.0, False)])
def test_a_load_that_was_not_sent_at_its_times_says_so(behind_ms: float, said: bool) -> None:
    load = LoadResult(tally=tally([], {}), seconds=1.0, behind_ms=behind_ms, seed=0, inputs=1)
    assert ("the load was up to 4.2 s behind its times" in load_text(load)) == said


def test_a_load_without_a_single_answer_says_what_to_check() -> None:
    sent = [Sent(id="q", created_s=0.0)]
    load = LoadResult(tally=tally(sent, {}), seconds=1.0, behind_ms=0.0, seed=0, inputs=1)
    assert "check that the pipeline is up" in load_text(load)
