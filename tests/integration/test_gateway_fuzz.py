"""A gateway handles damaged requests; ``python -m benchmarks.gateway_fuzz`` sends 100,000 of each
kind."""

from pathlib import Path

import pytest

from benchmarks.gateway_fuzz.__main__ import KINDS, run

COUNT = 3_000

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_damaged_requests_are_served_or_refused_as_client_errors(
    broker: str, tmp_path: Path
) -> None:
    found, wrong = run(broker, tmp_path, list(KINDS), 20_261_122, range(COUNT), at_once=16)
    assert wrong == 0, found
    assert [sum(found[kind].values()) for kind in KINDS] == [COUNT] * len(KINDS)
    assert found["honest"]["its own answer"] > 2
