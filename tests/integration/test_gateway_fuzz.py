"""A gateway under damaged requests; ``python -m benchmarks.gateway_fuzz`` sends 100,000."""

from pathlib import Path

import pytest

from benchmarks.gateway_fuzz import ALLOWED, run

COUNT = 5_000

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_damaged_requests_are_the_clients_fault_or_served(broker: str, tmp_path: Path) -> None:
    found = run(broker, tmp_path, seed=20_261_122, numbers=range(COUNT), connections=16)
    assert set(found) <= ALLOWED, found
    assert min(found[200], found[400]) > COUNT / 20
