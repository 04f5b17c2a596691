"""benchmarks/chaos: a few seconds of it, so that it works when it is wanted."""

import json
from pathlib import Path

import pytest

from benchmarks.chaos import ALL, as_json, measure, report

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_a_few_faults_and_the_account_of_every_query(tmp_path: Path) -> None:
    account = measure(tmp_path, seed=1, minutes=0.1, rate=30.0, bounded=False)
    print(report(account))
    assert account.broken == []
    assert account.recoveries[ALL].faults > 0
    assert json.loads(json.dumps(as_json(account)))["ok"]
