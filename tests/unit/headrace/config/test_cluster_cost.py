"""Cost of a cluster."""

from dataclasses import replace

import pytest

from headrace.config.cluster import Cluster, DeviceType
from headrace.config.cluster_cost import cost_per_hour, per_thousand, run_costs


def _cluster() -> Cluster:
    types = (
        DeviceType(name="big", device="cpu", price=0.5),
        DeviceType(name="small", device="cpu", price=0.1),
    )
    return Cluster(devices=(("big", 2), ("small", 3), ("own", 4)), types=types)


def test_devices_without_a_price_cost_nothing() -> None:
    assert cost_per_hour(_cluster()) == pytest.approx(1.3)
    assert cost_per_hour(replace(_cluster(), types=())) is None


def test_a_run_costs_its_time_by_its_answers() -> None:
    assert run_costs(_cluster(), 2000, 1800.0) == {
        "usd_per_h": 1.3,
        "usd_per_1000_answers": 0.325,
    }
    assert run_costs(_cluster(), 0, 1800.0)["usd_per_1000_answers"] is None
    assert run_costs(_cluster(), 10, 0.0)["usd_per_1000_answers"] is None
    assert run_costs(replace(_cluster(), types=()), 2000, 1800.0) == {}
    assert per_thousand(None, 1.0) is None
