"""Outcomes of a load and of a demo from constructed answers: phases, variants, time spent."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headrace.arrivals.load_phases import Phases
from headrace.config.pipeline_file import read_pipeline_file
from headrace.demo.demo_results import (
    DemoResult,
    PolicyChange,
    comparison_json,
    demo_comparison_text,
)
from headrace.load.load_result import LoadResult, load_row, load_text
from headrace.report.live_report import reported
from headrace.report.report_text import report_text
from headrace.results.latency_steps import StepTimes, steps
from headrace.results.phase_outcomes import InForce, Seen, Span, by_phase, by_policy, variant_shares
from headrace.results.tally import Sent, tally
from headrace.results.variant_outcomes import profiled_accuracy
from profiles.measurements import PathAccuracy
from profiles.profile_table import ProfileTable
from schemas.records import Answer, End, Hop, Lease, Origin, Plan, Settings
from tests.control_world import an_entry

FILE = Path(__file__).parents[4] / "examples" / "postcode" / "pipeline.yaml"


def hop(task: str, variant: str, received: float, started: float, finished: float) -> Hop:
    return Hop(
        task=task, variant=variant, worker="cpu-0", epoch=1, received_s=received,
        started_s=started, finished_s=finished, batch=1,
    )  # fmt: skip


def answer(name: str, created: float, variant: str = "net", result: str = "12") -> Answer:
    """Return an answer: located at once, then two digits read, the second one later."""
    root = hop("locate", variant, created + 0.010, created + 0.015, created + 0.035)
    first = hop("read", "cnn", created + 0.040, created + 0.041, created + 0.051)
    second = hop("read", "vit", created + 0.040, created + 0.060, created + 0.090)
    return Answer(
        id=name, origin=Origin(0, 0), outcome="answered", result=result, created_s=created,
        deadline_s=created + 0.3, answered_s=created + 0.1, epoch=1,
        paths=((root, first), (root, second)), ends=(End("answered", "read"),) * 2,
    )  # fmt: skip


def score(result: object, truth: str) -> tuple[int, int]:
    text = result if isinstance(result, str) else ""
    return sum(a == b for a, b in zip(text, truth, strict=False)), len(truth)


def test_time_is_followed_along_the_branch_that_finished_last() -> None:
    assert [(what, round(seconds * 1e3)) for what, seconds in steps(answer("a", 10.0))] == [
        ("to locate: Kafka, ingress", 10),
        ("locate: queue", 5),
        ("locate: compute", 20),
        ("to read: Kafka", 5),
        ("read: queue", 20),
        ("read: compute", 30),
        ("to the answer: Kafka, egress", 10),
    ]


@given(st.floats(0, 1e9))
def test_the_steps_of_a_query_add_up_to_its_latency(created: float) -> None:
    made = answer("a", created)
    assert sum(s for _, s in steps(made)) == pytest.approx(made.answered_s - made.created_s)


def test_an_answer_without_hops_is_one_step() -> None:
    assert list(steps(structs.replace(answer("a", 0.0), paths=()))) == [
        ("to the answer: Kafka, egress", 0.1)
    ]


def test_mean_of_every_step_is_listed_in_path_order() -> None:
    found = StepTimes()
    for each in (answer("a", 10.0), structs.replace(answer("b", 10.0), paths=(), ends=())):
        found.take(each)
    rows = [(step, round(ms, 6)) for step, ms in found.mean_ms.items()]
    assert rows[-2:] == [("read: compute", 15.0), ("to the answer: Kafka, egress", 55.0)]


def test_variants_share_the_branches_that_they_served() -> None:
    assert variant_shares([answer("a", 0.0), answer("b", 0.0, "components")]) == {
        "locate": {"components": 0.5, "net": 0.5},
        "read": {"cnn": 0.5, "vit": 0.5},
    }


SENT = [Sent("a", 10.0, "12"), Sent("b", 11.0, "34"), Sent("c", 12.0, "12")]
ANSWERS = {"a": answer("a", 10.0), "c": answer("c", 12.0, "components", "19")}
CHANGE = PolicyChange(
    before="accurate", after="loki", at_s=11.5, took_ms=40.0, epoch=2, message="ok"
)
SPANS = (Span("quiet", "accurate", 9.5, 11.5), Span("rising", "loki", 11.5, 13.5))


def a_plan(issued_s: float, devices: int) -> Plan:
    """Return a plan with another worker that only drains; its device is also in use."""
    leases = tuple(
        Lease(worker=f"w{n}", task="read", variant="vit", batch=1, slots=(n,), open_slot=n)
        for n in range(devices)
    )
    drains = Lease(worker="w9", task="read", variant="vit", batch=1, slots=(9,), open_slot=-1)
    return Plan(
        pipeline="postcode", epoch=round(issued_s), issued_s=issued_s, reason="",
        settings=Settings(policy="loki", slo_s=0.3), leases=(*leases, drains),
    )  # fmt: skip


PLANS = (a_plan(1.0, 4), a_plan(11.5, 2), a_plan(12.5, 3))
PROFILE = ProfileTable(
    "postcode",
    (
        an_entry("locate", "net", 1.0, 0.9, fan_out=2.0),
        an_entry("locate", "components", 1.0, 0.8, fan_out=2.0),
        an_entry("read", "cnn", 1.0, 0.95),
        an_entry("read", "vit", 1.0, 0.9),
    ),
    paths=tuple(
        PathAccuracy((f"locate/{a}", f"read/{b}"), 0.9, 100)
        for a in ("net", "components")
        for b in ("cnn", "vit")
    ),
)


PHASES = Phases.parsed("quiet=2s@1,rising=2s@1-2")


def a_load(sent: list[Sent] = SENT) -> LoadResult:
    seen = Seen(sent=sent, answers=ANSWERS, score=score, plans=PLANS)
    return LoadResult(
        tally=tally(sent, ANSWERS, score), seconds=4.0, behind_ms=3.0, seed=0, inputs=2,
        began_s=9.5, warm_up=60, arrivals=PHASES, phases=by_phase(SPANS, seen),
    )  # fmt: skip


def a_demo(sent: list[Sent] = SENT, change: PolicyChange | None = CHANGE) -> DemoResult:
    report = reported(read_pipeline_file(FILE), list(ANSWERS.values()), PLANS)
    return DemoResult(a_load(sent), report, change, hardware_qps=1.5)


def test_phases_are_split_where_another_policy_came_into_force() -> None:
    phases = [("quiet", 100.0, 102.0), ("rising", 102.0, 106.0)]
    in_force = [InForce(since_s=50.0, policy="a"), InForce(since_s=101.5, policy="b")]
    assert [*by_policy(phases, in_force)] == [
        Span("quiet", "a", 100.0, 101.5),
        Span("quiet", "b", 101.5, 102.0),
        Span("rising", "b", 102.0, 106.0),
    ]
    assert [span.policy for span in by_policy(phases, in_force[:1])] == ["a", "a"]
    assert [span.policy for span in by_policy(phases, [])] == ["", ""]


def test_queries_are_distinguished_by_phase_and_policy() -> None:
    found = load_row(a_load())
    rows = [
        (p["phase"], p["policy"], p["queries"], p["lost"], p["accuracy"], p["score"], p["devices"])
        for p in found["phases"]
    ]
    assert rows == [
        ("quiet", "accurate", 2, 1, 1.0, 0.5, 5.0),
        ("rising", "loki", 1, 0, 0.5, 0.5, 3.5),
    ]
    assert [p["demand_qps"] for p in found["phases"]] == [1.0, 0.5]
    assert found["phases"][0]["variant_shares"]["locate"] == {"net": 1.0}


ABOUT_100 = pytest.approx(100.0, rel=1e-3)


def test_a_demo_has_the_promised_keys_and_excludes_the_warm_up_by_name() -> None:
    found = a_demo().as_json(("broker (process 7)",))
    promised = {
        "queries": 3, "answered": 2, "late": 0, "dropped": 0, "failed": 0, "refused": 0, "lost": 1,
        "slo_attainment": 2 / 3, **dict.fromkeys(("p50_ms", "p95_ms", "p99_ms"), ABOUT_100),
        "accuracy": 0.75, "postcode_accuracy": 0.5, "score": 0.5, "devices": 4.25,
        "seconds": 4.0, "throughput_qps": 0.5, "pipeline": "postcode", "rate_qps": 1.25,
        "peak_qps": 2.0, "hardware_qps": 1.5, "seed": 0, "warm_up_queries_excluded": 60,
        "distinct_inputs": 2, "behind_ms": 3.0,
        "policy_change": {"before": "accurate", "after": "loki", "took_ms": 40.0, "epoch": 2,
                          "message": "ok"},
        "variant_shares": {"locate": {"components": 0.5, "net": 0.5},
                           "read": {"cnn": 0.5, "vit": 0.5}},
        "reasons": {"lost: no answer came": 1}, "processes_left": ["broker (process 7)"],
    }  # fmt: skip
    assert {key: found[key] for key in promised} == promised
    assert {*found} - {*promised} == {"machine", "phases", "path_accuracy", "time_spent"}
    assert [phase["postcode_accuracy"] for phase in found["phases"]] == [1.0, 0.0]
    assert [step["step"] for step in found["time_spent"]][:2] == [
        "to locate: Kafka, ingress", "locate: queue"
    ]  # fmt: skip
    assert sum(step["share"] for step in found["time_spent"]) == pytest.approx(1.0, abs=1e-3)
    assert a_demo(change=None).as_json(())["policy_change"] is None


def test_the_accuracy_that_paths_expect_stands_beside_that_of_products() -> None:
    expected = profiled_accuracy(ANSWERS.values(), PROFILE)
    assert expected is not None
    told = expected.as_json()
    # net > cnn, net > vit, components > cnn, components > vit, once each.
    assert told["by_paths"] == pytest.approx(0.9)
    assert told["by_products"] == pytest.approx((0.855 + 0.81 + 0.76 + 0.72) / 4)
    assert (told["paths"], told["largest_path"]) == (4, ["locate/components", "read/vit"])
    unmeasured = ProfileTable("postcode", PROFILE.entries)
    assert profiled_accuracy(ANSWERS.values(), unmeasured) is None
    assert profiled_accuracy([], PROFILE) is None


def test_the_outcomes_of_a_load_by_phase_fit_a_terminal_of_80_characters() -> None:
    text = load_text(a_load())
    assert "3 queries in 4.0 s: 2 answered, 0 late, 0 dropped, 0 failed, 0 refused, 1 lost" in text
    assert "1 x lost: no answer came" in text
    assert "60 warm-up queries before it are not counted" in text
    rows = [line.split() for line in text.splitlines()]
    for row in (
        ["quiet", "rising", "all"],
        ["policy", "accurate", "loki"],
        ["queries/s", "1.0", "0.5", "0.8"],
        ["right", "in", "time", "%", "50.0", "50.0", "50.0"],
        ["locate/components", "100.0", "50.0"],
    ):
        assert row in rows
    assert max(map(len, text.splitlines())) <= 80


def test_a_report_tells_where_the_time_went() -> None:
    text = report_text(a_demo().report)
    assert "where the time went, mean of answered queries" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["read:", "compute", "30.00", "ms", "30.0", "%", "#" * 24] in rows


def test_a_comparison_tells_which_policy_did_best_by_what_was_right_and_in_time() -> None:
    runs = [("loki", a_demo([SENT[0]])), ("accurate", a_demo())]
    row = comparison_json(runs, ("broker (process 7)",))
    assert (row["best"], [run["policy"] for run in row["runs"]]) == ("loki", ["loki", "accurate"])
    assert {*row} == {
        "pipeline", "seed", "seconds", "peak_qps", "hardware_qps", "machine", "best", "runs",
        "processes_left",
    }  # fmt: skip
    assert [run["lost"] for run in row["runs"]] == [each.lost for _, each in runs] == [0, 1]
    text = demo_comparison_text(runs)
    assert "parts right and in time: loki 100.0 %, accurate 50.0 %; best: loki" in text
