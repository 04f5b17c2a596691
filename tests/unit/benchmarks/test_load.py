"""Figures of an offered load."""

import numpy as np
import pytest

from benchmarks.load import _figures


def test_figures_are_of_the_queries_sent_in_the_measured_time() -> None:
    answers = np.array([[0.5, 0.6], [1.0, 1.002], [1.5, 1.504], [2.5, 2.6]])
    found = _figures(answers, 1, 1.0, 2.0, {"relay": 0.004})
    assert (found.sent, found.answered, found.qps) == (3, 2, 2.0)
    assert found.p50_ms == pytest.approx(3.0)
    assert found.cpu_ms_per_query == {"relay": 2.0}


def test_run_without_any_answer_in_time_raises_an_error() -> None:
    with pytest.raises(TimeoutError, match="none of 4 queries was answered"):
        _figures(np.array([[0.5, 0.6]]), 4, 1.0, 2.0, {})
