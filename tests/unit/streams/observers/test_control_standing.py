"""A control app exports whether it is in charge, and the number of late reports."""

from msgspec.structs import replace

from schemas.effects import PLANS, REPORTS, Arrived, Heartbeat, Heartbeats, Send, Woke
from streams.observers.control_standing import ControlStanding
from streams.observers.metrics import Metrics
from tests.builders import a_plan
from tests.control_world import a_pipeline, an_ingress_report


def heard(standing: ControlStanding, sent_s: float, now: float, pipeline: str = "postcode") -> None:
    report = replace(an_ingress_report(sent_s), pipeline=pipeline)
    standing.saw("control", Arrived(report, REPORTS, 0, 0, now), [], now)


def exported(standing: ControlStanding) -> dict[str, float]:
    return {name: value for name, _, value in standing.samples()}


def test_whether_it_is_in_charge_is_exported() -> None:
    standing = ControlStanding("postcode")
    assert exported(standing)["control_in_charge"] == 0.0
    standing.began()
    assert exported(standing)["control_in_charge"] == 1.0
    standing.ended()
    assert exported(standing)["control_in_charge"] == 0.0


def test_on_standby_an_app_exports_its_counts_but_nothing_of_the_plan_of_its_last_term() -> None:
    standing, metrics = ControlStanding("postcode"), Metrics(a_pipeline())
    standing.began()
    metrics.saw("control", Woke(), [Send(PLANS, a_plan(feasible=False), 0)], 100.0)
    in_charge = {name for name, *_ in standing.current(metrics.samples())}
    assert in_charge >= {"plans_total", "plan_feasible", "plan_demand_queries_per_second"}
    standing.ended()
    on_standby = {name for name, *_ in standing.current(metrics.samples())}
    assert on_standby == {"plans_total", "dead_letters_total"}


def test_reports_that_come_later_than_their_senders_fastest_one_are_counted() -> None:
    standing = ControlStanding("postcode")
    for sent_s in (100.0, 100.2, 100.4):
        heard(standing, sent_s, sent_s + 0.01)
    assert exported(standing)["reports_stale_total"] == 0.0
    heard(standing, 100.6, 102.7)
    heard(standing, 100.6, 102.7, "another")
    late = Heartbeat("postcode", "cpu-0", 1.0, 100.0)
    standing.saw("control", Heartbeats((late,)), [], 100.1)
    standing.saw("control", Heartbeats((late,)), [], 103.0)
    assert exported(standing)["reports_stale_total"] == 2.0


def test_a_clock_that_is_off_makes_no_report_stale_and_ages_count_anew_in_charge() -> None:
    standing = ControlStanding("postcode")
    heard(standing, 0.0, 100.0)
    heard(standing, 0.2, 100.2)
    assert exported(standing)["reports_stale_total"] == 0.0
    standing.began()
    heard(standing, 0.4, 110.4)
    assert exported(standing)["reports_stale_total"] == 0.0
