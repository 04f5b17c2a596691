"""benchmarks/chaos runs for a few seconds, and injects faults into each of three nodes in turn."""

import json
from pathlib import Path

import pytest

from benchmarks.chaos import ALL, as_json, measure, report

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_a_few_faults_leave_every_query_accounted_for(tmp_path: Path) -> None:
    account = measure(tmp_path, seed=1, minutes=0.1, rate=30.0, bounded=False)
    print(report(account))
    assert account.broken == []
    assert account.recoveries[ALL].faults > 0
    assert json.loads(json.dumps(as_json(account)))["ok"]


def test_each_of_three_brokers_is_killed_frozen_and_restarted_under_load(tmp_path: Path) -> None:
    names = ("kill node", "freeze node", "restart node")
    account = measure(tmp_path, seed=4, minutes=3.0, rate=20.0, nodes=3, slo_s=2.0, names=names)
    print(report(account))
    assert account.broken == []
    assert {*names} <= account.recoveries.keys()
