"""The demo's report from made-up answers: phases, variants, and where time went."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headrace.demo.demo_report import (
    Change,
    DemoConditions,
    DemoReport,
    Seen,
    Span,
    report,
    time_spent,
    variant_shares,
)
from headrace.demo.demo_text import shown
from headrace.demo.policy_comparison import PolicyComparison
from headrace.demo.policy_comparison_text import shown as shown_compared
from headrace.results.latency_steps import steps
from headrace.results.tally import Sent
from headrace.terminal import rich_console
from profiles.measurements import PathAccuracy
from profiles.profile_table import ProfileTable
from schemas.records import Answer, Hop, Lease, Origin, Plan, Settings
from tests.control_world import an_entry

CONDITIONS = DemoConditions(
    pipeline="postcode", machine="a laptop", seconds=4.0, rate_qps=1.0, peak_qps=2.0,
    hardware_qps=1.5, seed=0, warm_up=60, distinct_inputs=2, behind_ms=3.0,
)  # fmt: skip


def hop(task: str, variant: str, received: float, started: float, finished: float) -> Hop:
    return Hop(
        task=task, variant=variant, worker="cpu-0", epoch=1, received_s=received,
        started_s=started, finished_s=finished, batch=1,
    )  # fmt: skip


def answer(name: str, created: float, variant: str = "net", result: str = "12") -> Answer:
    """Located at once, then two digits read, the second one later."""
    root = hop("locate", variant, created + 0.010, created + 0.015, created + 0.035)
    first = hop("read", "cnn", created + 0.040, created + 0.041, created + 0.051)
    second = hop("read", "vit", created + 0.040, created + 0.060, created + 0.090)
    return Answer(
        id=name, origin=Origin(0, 0), outcome="answered", result=result, created_s=created,
        deadline_s=created + 0.3, answered_s=created + 0.1, epoch=1,
        paths=((root, first), (root, second)),
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


def test_the_mean_of_every_step_and_its_share_are_told_in_order_of_the_way() -> None:
    found = time_spent([answer("a", 10.0), structs.replace(answer("b", 10.0), paths=())])
    assert [(s.what, round(s.mean_ms, 6)) for s in found][-2:] == [
        ("read: compute", 15.0),
        ("to the answer: Kafka, egress", 55.0),
    ]
    assert sum(s.share for s in found) == pytest.approx(1.0)


def test_variants_share_the_branches_that_they_served() -> None:
    assert variant_shares([answer("a", 0.0), answer("b", 0.0, "components")]) == {
        "locate": {"components": 0.5, "net": 0.5},
        "read": {"cnn": 0.5, "vit": 0.5},
    }


SENT = [Sent("a", 10.0, "12"), Sent("b", 11.0, "34"), Sent("c", 12.0, "12")]
ANSWERS = {"a": answer("a", 10.0), "c": answer("c", 12.0, "components", "19")}
CHANGE = Change(before="accurate", after="loki", at_s=11.5, took_ms=40.0, epoch=2, message="ok")
SPANS = (Span("quiet", "accurate", 9.5, 11.5), Span("rising", "loki", 11.5, 13.5))


def a_plan(issued_s: float, devices: int) -> Plan:
    """With one worker more that only drains, and is a device in use as well."""
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


def a_report(sent: list[Sent] = SENT, change: Change | None = CHANGE) -> DemoReport:
    seen = Seen(
        sent=sent, answers=ANSWERS, score=score, spans=SPANS, plans=PLANS, profile=PROFILE
    )  # fmt: skip
    return report(CONDITIONS, seen, change)


def test_queries_are_told_apart_by_phase_and_policy() -> None:
    found = a_report().as_json()
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
    assert found["policy_change"] == {
        "before": "accurate", "after": "loki", "took_ms": 40.0, "epoch": 2, "message": "ok",
    }  # fmt: skip


ABOUT_100 = pytest.approx(100.0, rel=1e-3)


def test_the_report_has_the_promised_keys_and_excludes_the_warm_up_by_name() -> None:
    found = a_report(change=None).as_json()
    promised = {
        "queries": 3, "answered": 2, "late": 0, "dropped": 0, "failed": 0, "refused": 0, "lost": 1,
        "slo_attainment": 2 / 3, **dict.fromkeys(("p50_ms", "p95_ms", "p99_ms"), ABOUT_100),
        "accuracy": 0.75, "postcode_accuracy": 0.5, "seconds": 4.0,
    }  # fmt: skip
    assert {key: found[key] for key in promised} == promised
    assert found["score"] == pytest.approx(0.5)  # 3 of 6 digits right and in time
    assert found["warm_up_queries_excluded"] == 60
    assert found["throughput_qps"] == 0.5


def test_measured_accuracy_stands_beside_what_paths_and_products_expect() -> None:
    told = a_report().as_json()["path_accuracy"]
    # net > cnn, net > vit, components > cnn, components > vit, once each.
    assert told["by_paths"] == pytest.approx(0.9)
    assert told["by_products"] == pytest.approx((0.855 + 0.81 + 0.76 + 0.72) / 4)
    assert (told["paths"], told["largest_path"]) == (4, ["locate/components", "read/vit"])
    unmeasured = Seen(sent=SENT, answers=ANSWERS, score=score, spans=SPANS, plans=())
    assert report(CONDITIONS, unmeasured, None).as_json()["path_accuracy"] is None


def test_a_demo_is_sound_if_nothing_is_lost_and_nothing_is_left() -> None:
    lossless = a_report([SENT[0]])
    haunted = replace(lossless, conditions=replace(CONDITIONS, left=("broker (process 7)",)))
    assert [r.sound for r in (lossless, a_report(), haunted)] == [True, False, False]


def text_of(shown: object) -> str:
    console = rich_console()
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_the_report_reads_well_without_a_terminal() -> None:
    text = text_of(shown(a_report()))
    assert "2 of 3 queries answered in time (66.7 %), 0.5 per second; 1 lost" in text
    assert "in force as plan 2 after 40 ms" in text
    assert "locate/components" in text
    assert "1 x lost: no answer came" in text
    assert "60 warm-up queries before it are not counted" in text
    assert "75.0 % measured, 90.0 % expected by measured paths, 78.6 % by products" in text
    assert "accurate variants carry 2 on all devices, by the profile" in " ".join(text.split())
    assert "\x1b" not in text


def test_a_comparison_tells_who_did_best_by_what_was_right_and_in_time() -> None:
    better, worse = a_report([SENT[0]]), a_report()
    found = PolicyComparison((("loki", better), ("accurate", worse)))
    row = found.as_json()
    assert (row["best"], [run["policy"] for run in row["runs"]]) == ("loki", ["loki", "accurate"])
    assert not found.sound
    assert PolicyComparison((("loki", better),)).sound
    assert not PolicyComparison((("loki", better),), left=("broker (process 7)",)).sound
    text = text_of(shown_compared(found))
    assert "parts right and in time: loki 100.0 %, accurate 50.0 %; best: loki" in text
    assert "accurate: 0 late; without an answer: 1 x lost: no answer came" in text
