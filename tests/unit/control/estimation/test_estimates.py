"""With many workers not every report is read, and the estimates are the same."""

import pytest

from control.estimation.demand import counted
from control.estimation.estimates import Estimates
from schemas.records import Report
from tests.control_world import a_pipeline, a_profile

ITEMS_PER_S = 20.0


def a_report(number: int, at_s: float, incarnation: float = 1.0) -> Report:
    items = (at_s - incarnation) * ITEMS_PER_S
    return Report(
        node=f"w{number}", role="worker", pipeline="postcode", epoch=1, incarnation=incarnation,
        sent_s=at_s, state="ready", device="cpu", task="locate", variant="net",
        counts={
            "arrived/locate/net": items, "finished/locate/net": items,
            "children/locate/net/read": 3 * items,
        },
    )  # fmt: skip


def observed(workers: int, seconds: float) -> Estimates:
    estimates = Estimates(a_pipeline(), a_profile())
    for tick in range(round(seconds / 0.2)):
        for number in range(workers):
            estimates.observe(a_report(number, 2.0 + tick * 0.2))
    return estimates


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [3, 400])
def test_rates_and_fan_out_do_not_depend_on_the_number_of_workers(workers: int) -> None:
    estimates = observed(workers, 60.0)
    arriving = estimates.arriving(62.0)
    assert arriving == {"locate/net": pytest.approx(workers * ITEMS_PER_S, rel=0.02)}
    assert estimates.multiplicity == {("locate/net", "read"): pytest.approx(3.0)}


def test_a_restarted_worker_is_read_at_once() -> None:
    estimates = observed(400, 2.0)
    before = estimates.arriving(2.0)["locate/net"]
    estimates.observe(a_report(7, 2.0, incarnation=1.9))  # its rate starts again
    assert estimates.arriving(2.0)["locate/net"] < before


def test_routes_follow_a_jump_within_tenths_and_a_steady_stream_by_its_mean() -> None:
    estimates = Estimates(a_pipeline(), a_profile())
    arrived, now = 0, 100.0
    for tenth, came in enumerate([0] * 10 + [200] * 3):
        now, arrived = 100.0 + tenth / 10, arrived + came
        estimates.count(counted(now, {0: arrived}, {}))
    assert estimates.arriving_qps(now) == pytest.approx(2000.0)
    for tenth in range(1, 201):
        now, arrived = 101.2 + tenth / 10, arrived + 200
        estimates.count(counted(now, {0: arrived}, {}))
    assert estimates.arriving_qps(now) == pytest.approx(2000.0, rel=1e-3)
