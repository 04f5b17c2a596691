"""Metrics folded from literal events and effects."""

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from operators.outcomes import outcome_of
from schemas.effects import (
    COMMAND_RESULTS,
    DEAD_LETTERS,
    OUTPUTS,
    PLANS,
    REPORTS,
    RESULTS,
    Failed,
    Send,
    Solve,
    Solved,
    Woke,
    work_topic,
)
from schemas.records import (
    ANSWERED,
    DROPPED,
    FAILED,
    Answer,
    CommandResult,
    DeadLetter,
    Report,
    SlotState,
)
from streams.observers.metric_table import BY_NAME, COUNTER, GAUGE, HISTOGRAM, METRICS, SUMMARY
from streams.observers.metrics import Metrics, Observed
from tests.builders import (
    a_hop,
    a_lease,
    a_pipeline,
    a_plan,
    a_refusal,
    a_work,
    an_answer,
    an_end,
    an_ended,
    an_item,
    arrived,
    inferred,
    loaded,
)
from tests.small_world import simulate, small_nodes, small_pipeline

PIPELINE = a_pipeline({"locate": ["read"], "read": []})
LATE_DROP = "read/v would finish 12 ms after the deadline"


def folded(metrics: Metrics) -> dict[tuple[str, ...], Any]:
    """Samples by name and labels, without counters at 0; histograms, summaries as (count, sum to
    the microsecond)."""
    return {
        (name, *labels): (value.count, round(value.total, 6))
        if isinstance(value, Observed)
        else value
        for name, labels, value in metrics.samples()
        if value or BY_NAME[name].kind != COUNTER
    }


def answered(*answers: Answer) -> Metrics:
    metrics = Metrics(PIPELINE)
    metrics.saw("egress-0", Woke(), [Send(RESULTS, each) for each in answers], 1.0)
    return metrics


def test_outcomes_are_disjoint_and_misses_have_a_task_and_a_reason() -> None:
    late = an_answer(
        1, late=True, answered_s=0.7,
        paths=((a_hop(task="locate", finished_s=0.4), a_hop(finished_s=0.6)),),
    )  # fmt: skip
    part = an_answer(
        2, incomplete=True, task="read", reason=LATE_DROP,
        ends=(an_end(ANSWERED, "read"), an_end(DROPPED, "read", LATE_DROP)),
    )  # fmt: skip
    metrics = answered(
        an_answer(0, expected_accuracy=0.9),
        late,
        part,
        an_answer(3, outcome=FAILED, task="locate", reason="locate/v raised OSError: x"),
        an_answer(4, outcome=DROPPED, task="read", reason=LATE_DROP),
        a_refusal(5, "over capacity", 0.01),
        an_answer(6, outcome=DROPPED, task="gone-from-the-file", reason="whatever"),
    )
    assert folded(metrics) == {
        ("queries_total", "answered"): 1,
        ("queries_total", "late"): 1,
        ("queries_total", "dropped"): 3,
        ("queries_total", "failed"): 1,
        ("queries_total", "refused"): 1,
        ("misses_total", "late", "read", "late"): 1,
        ("misses_total", "dropped", "read", "past_saving"): 2,
        ("misses_total", "failed", "locate", "operator"): 1,
        ("misses_total", "refused", "ingress", "over_capacity"): 1,
        ("misses_total", "dropped", "other", "other"): 1,
        ("query_seconds",): (3, 1.1),
        ("served_accuracy_ratio",): (1, 0.9),
    }


def test_queue_and_compute_are_taken_from_what_became_of_a_batch() -> None:
    hop = a_hop(task="locate", received_s=0.04, started_s=0.1, finished_s=0.2)
    path, other = (hop,), (structs.replace(hop, received_s=0.09),)
    dropped = an_ended(outcome=DROPPED, reason="late", path=(a_hop(worker="far", started_s=0.1),))
    effects = [
        # one item with two children in two slots, another with none, a third dropped afterwards
        Send(work_topic("read"), a_work(0, an_item(path=path), an_item(path=path)), 0),
        Send(work_topic("read"), a_work(0, an_item(path=path)), 1),
        Send(OUTPUTS, a_work(1, an_ended(path=other), task=""), 0),
        Send(OUTPUTS, a_work(2, dropped, an_ended(path=()), task=""), 0),
    ]
    metrics = Metrics(PIPELINE)
    metrics.saw("w", inferred(1, [], []), effects, 0.2)
    assert folded(metrics) == {
        ("batches_total", "locate", "v", "idle"): 1,
        ("compute_seconds", "locate", "v"): (1, 0.1),
        ("queue_seconds", "locate", "v"): (2, 0.07),
    }


def report(node: str, state: str = "ready", **counts: float) -> Report:
    return Report(
        node=node, role="worker", pipeline="p", epoch=1, incarnation=0.0, sent_s=1.0, state=state,
        slots=(SlotState("read", 0, 5, 3), SlotState("read", 1, 9, 1)),
        counts={key.replace("__", "/"): value for key, value in counts.items()},
    )  # fmt: skip


def test_what_nodes_count_themselves_is_taken_from_their_newest_reports() -> None:
    metrics = Metrics(PIPELINE)
    counts = {
        "arrived__read__v": 9, "finished__read__v": 7, "dropped__read__v": 1, "failed__read__v": 1,
        "busy_s__read__v": 0.5, "batches__read__v": 2, "children__locate__v__read": 12,
    }  # fmt: skip
    for each in (
        report("w0", arrived__read__v=1),
        report("w0", **counts),
        report("w1", "failed", arrived__read__v=4),
    ):
        metrics.saw(each.node, Woke(), [Send(REPORTS, each, 0)], 1.0)
    found = folded(metrics)
    states = {key[1]: value for key, value in found.items() if key[0] == "nodes"}
    assert states == {
        "idle": 0, "loading": 0, "ready": 1, "draining": 0, "leaving": 0, "failed": 1,
        "stuck": 0,
    }  # fmt: skip
    assert {key: value for key, value in found.items() if key[0] != "nodes"} == {
        ("items_received_total", "read", "v"): 13,
        ("items_finished_total", "read", "v"): 7,
        ("items_dropped_total", "read", "v"): 1,
        ("items_failed_total", "read", "v"): 1,
        ("device_busy_seconds_total", "read", "v"): 0.5,
        ("children_total", "locate", "v", "read"): 12,
        ("items_queued", "read"): 8,
    }


def test_ingress_and_egress_count_queries_and_duplicates() -> None:
    metrics = Metrics(PIPELINE)
    counts = {"arrived": 10.0, "admitted": 7.0, "refused": 2.0, "dropped": 1.0, "decisions": 4.0}
    ingress = structs.replace(report("ingress-0"), role="ingress", slots=(), counts=counts)
    egress = structs.replace(
        report("egress-0"), role="egress", slots=(), counts={"duplicates": 3.0}
    )
    for each in (ingress, egress):
        metrics.saw(each.node, Woke(), [Send(REPORTS, each, 0)], 1.0)
    assert {key: value for key, value in folded(metrics).items() if key[0] != "nodes"} == {
        ("queries_read_total",): 10,
        ("queries_admitted_total",): 7,
        ("queries_refused_total",): 2,
        ("dispatch_decisions_total",): 4,
        ("duplicates_total",): 3,
    }


def test_the_counters_of_alerts_begin_at_0_as_the_first_event_is_no_increase_otherwise() -> None:
    metrics = Metrics(PIPELINE)
    assert list(metrics.samples()) == [("dead_letters_total", (), 0)]
    egress = structs.replace(report("egress-0"), role="egress", slots=(), counts={})
    metrics.saw("egress-0", Woke(), [Send(REPORTS, egress, 0)], 1.0)
    outcomes = ("answered", "late", "dropped", "failed", "refused")
    began = [each for each in metrics.samples() if each[0] == "queries_total"]
    assert began == [("queries_total", (outcome,), 0) for outcome in outcomes]
    metrics.saw("egress-0", Woke(), [Send(RESULTS, an_answer())], 1.1)
    metrics.saw("egress-0", Woke(), [Send(REPORTS, egress, 0)], 1.2)
    assert folded(metrics)["queries_total", "answered"] == 1


def test_the_plan_in_force_is_reported_by_the_control_app_and_its_epoch_by_every_node() -> None:
    control = Metrics(PIPELINE)
    plan = a_plan(
        [a_lease("w0"), a_lease("w1"), a_lease("w2", "locate"), a_lease("w3", open_slot=-1)],
        epoch=4, demand_qps=40.0, capacity_qps=120.0, expected_accuracy=0.96, feasible=False,
    )  # fmt: skip
    control.saw("control", Woke(), [Solve(1, "static", None)], 2.0)
    control.saw("control", Solved(1, None), [Send(PLANS, plan, 0)], 2.5)
    control.saw("control", Woke(), [Solve(2, "static", None)], 3.0)
    control.saw("control", Failed(2, "no"), [], 3.25)
    assert folded(control) == {
        ("plans_total",): 1,
        ("plan_epoch",): 4,
        ("plan_feasible",): 0,
        ("plan_demand_queries_per_second",): 40.0,
        ("plan_capacity_queries_per_second",): 120.0,
        ("plan_accuracy_ratio",): 0.96,
        ("plan_workers", "read", "v"): 2,
        ("plan_workers", "locate", "v"): 1,
        ("solve_seconds",): (2, 0.75),
    }
    workers = Metrics(PIPELINE)
    for node, epoch in (("w0", 4), ("w1", 3), ("w0", 3)):
        workers.saw(node, arrived(a_plan(epoch=epoch)), [], 2.0)
    workers.saw("w1", arrived(a_plan(epoch=8, pipeline="another")), [], 2.0)
    assert folded(workers)["plan_epoch",] == 3


def test_the_cost_of_the_plan_is_that_of_its_workers_with_a_price() -> None:
    control = Metrics(PIPELINE, {"gpu": 0.5, "spare": 9.0})
    leases = [
        msgspec.structs.replace(a_lease(worker, task), type=type_)
        for worker, task, type_ in (
            ("w0", "read", "gpu"), ("w0", "locate", "gpu"), ("w1", "read", "gpu"),
            ("w2", "read", "own"),
        )
    ]  # fmt: skip
    control.saw("control", Woke(), [Send(PLANS, a_plan(leases), 0)], 1.0)
    cost = {key: value for key, value in folded(control).items() if "cost" in key[0]}
    assert cost == {("cost_dollars_per_hour", "gpu"): 1.0}


def test_loads_commands_and_dead_letters_are_counted() -> None:
    letter = DeadLetter(topic="t", partition=0, offset=0, reason="r", value=b"", at_s=0.0)
    results = [
        CommandResult(
            id=f"c{n}", pipeline="p", action="pause", ok=n != 1, message="", epoch=1, finished_s=1.0
        )
        for n in range(3)
    ]
    metrics = Metrics(PIPELINE)
    metrics.saw("w", loaded("read/v", 1.5), [Send(DEAD_LETTERS, letter)], 1.0)
    metrics.saw("c", Woke(), [Send(COMMAND_RESULTS, each) for each in results], 1.0)
    assert folded(metrics) == {
        ("load_seconds", "read", "v"): (1, 1.5),
        ("dead_letters_total",): 1,
        ("commands_total", "done"): 2,
        ("commands_total", "refused"): 1,
    }


def test_a_histogram_counts_a_bound_as_below_itself() -> None:
    observed = Observed((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        observed.add(value)
    assert (observed.counts, observed.count, observed.total) == ([2, 1, 1], 4, 7.65)


def test_the_slo_is_a_bound_of_the_latencies() -> None:
    metrics = Metrics(replace(PIPELINE, slo_s=0.333))
    metrics.saw("e", Woke(), [Send(RESULTS, an_answer())], 1.0)
    observed = {name: value for name, _, value in metrics.samples()}["query_seconds"]
    assert isinstance(observed, Observed)
    assert 0.333 in observed.bounds


def test_a_whole_run_adds_up_to_what_its_answers_say() -> None:
    pipeline = small_pipeline()
    metrics = Metrics(pipeline)
    run = simulate(pipeline, small_nodes(pipeline), 7, metrics)
    answers = [
        record
        for log in run.written(RESULTS).values()
        for record, _ in log
        if isinstance(record, Answer)
    ]
    found = folded(metrics)
    outcomes = Counter(outcome_of(each) for each in answers)
    assert {k[1]: v for k, v in found.items() if k[0] == "queries_total"} == outcomes
    assert len(outcomes) > 1
    misses = sum(v for k, v in found.items() if k[0] == "misses_total")
    assert misses == len(answers) - outcomes[ANSWERED]
    # A batch is counted once per run, an item once per batch that it was in.
    for task in pipeline.task_names:
        batches = sum(v for k, v in found.items() if k[:2] == ("batches_total", task))
        assert found["compute_seconds", task, "v"][0] == batches > 0
        finished = found["items_finished_total", task, "v"]
        assert found["queue_seconds", task, "v"][0] == pytest.approx(finished, abs=8)
    known = {(name, len(labels)) for name, labels, _ in metrics.samples()}
    assert known <= {(m.name, len(m.labels)) for m in BY_NAME.values()}


def test_names_follow_prometheus() -> None:
    assert sum(len(each) for each in METRICS.values()) == len(BY_NAME)
    for metric in BY_NAME.values():
        assert metric.name.endswith("_total") == (metric.kind == COUNTER), metric.name
        assert metric.kind in (COUNTER, GAUGE, HISTOGRAM, SUMMARY)
        if metric.kind in (HISTOGRAM, SUMMARY):
            assert metric.name.endswith(("_seconds", "_ratio")), metric.name
        assert not {"id", "query", "worker", "epoch"} & set(metric.labels)
