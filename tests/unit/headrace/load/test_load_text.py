"""The outcomes of a load as text."""

import pytest

from headrace.load.load_result import LoadResult, load_text
from headrace.results.tally import tally


@pytest.mark.parametrize(("behind_ms", "said"), [(4200.0, True), (20.0, False)])
def test_a_load_that_was_not_sent_at_its_times_says_so(behind_ms: float, said: bool) -> None:
    load = LoadResult(tally=tally([], {}), seconds=1.0, behind_ms=behind_ms, seed=0, inputs=1)
    assert ("the load was up to 4.2 s behind its times" in load_text(load)) == said
