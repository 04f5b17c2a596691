"""All components that count queries report the same figures for one tape."""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from benchmarks import received_answers
from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Renewal
from headrace.arrivals.load_phases import LoadPhase, Phases
from headrace.client.ask import answer_text
from headrace.client.find_answer import answer_that_ended
from headrace.client.formats import answer_reader
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.demo.demo_results import DemoResult
from headrace.load.load_result import LoadResult
from headrace.report.live_report import LiveReport, reported
from headrace.results.phase_outcomes import Seen, Span, by_phase
from headrace.results.tally import Sent, Tally, tally
from headrace.results.time_series import Recorder
from headrace.results.waterfall import explained
from headrace.results.waterfall_text import waterfall_lines
from headrace.roles.profile_lookups import accuracies
from headrace.simulation.chrome_trace import ChromeTrace
from headrace.simulation.comparison import FIGURES, OF_QUERIES, Comparison, Played
from headrace.simulation.comparison import as_json as comparison_as_json
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Ended
from headrace.simulation.static_best import NAME as STATIC_BEST
from headrace.simulation.static_best import search
from headrace.status.snapshot import Snapshot, board_of
from operators.outcomes import LATE, LOST, OUTCOMES
from schemas.codec.single_object import encode
from schemas.effects import PLANS, Send, Woke
from schemas.records import ANSWERED, Answer, Plan, Report
from streams.observers.journal import Journal
from streams.observers.metrics import Metrics, Observed
from streams.observers.run_metrics import RunMetrics
from streams.simulated.delays import constant_delays
from streams.simulated.simulated_driver import Simulated
from tests.small_world import HOP_S, UNTIL_S, small_inputs, small_model, small_nodes
from tests.tape import Tape

SEED = 3
LOST_QUERIES = 3  # sent, and never answered
SLO_S, GRACE_S = 0.06, 0.02
CAPACITY_QPS = 90.0  # low enough that ingress refuses some queries
Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Taped:
    """Hold a run with every outcome, and all events and effects of its nodes."""

    file: PipelineFile
    plan: Plan
    tape: Tape

    def sent(self, kind: type[Any]) -> list[Any]:
        """Return every record of a kind, in the order of the tape."""
        return [
            effect.record
            for entry in self.tape.entries
            for effect in entry.effects
            if type(effect) is Send and type(effect.record) is kind
        ]

    @property
    def answers(self) -> list[Answer]:
        """Return every answer."""
        return self.sent(Answer)

    def seen_by(self, observer: Any) -> Any:
        """Return the observer after it has observed the whole tape."""
        for entry in self.tape.entries:
            observer.saw(entry.node, entry.event, entry.effects, entry.now)
        return observer


@pytest.fixture(scope="module")
def taped(tmp_path_factory: pytest.TempPathFactory) -> Taped:
    folder = tmp_path_factory.mktemp("outcomes")
    path = a_cluster(
        folder, name="p", slo=f"{SLO_S}s", grace=f"{GRACE_S}s",
        children={"locate": ["read"], "read": []},
    )  # fmt: skip
    file, tape = read_pipeline_file(path), Tape()
    (_, _, _, plan), *queries = small_inputs(SEED)
    assert isinstance(plan, Plan)
    leases = tuple(structs.replace(each, variant="small") for each in plan.leases)
    plan = structs.replace(plan, leases=leases, capacity_qps=CAPACITY_QPS)
    system = Simulated(
        file.pipeline, small_nodes(file.pipeline), partial(small_model, SEED),
        delays=constant_delays(HOP_S), observers=[tape],
    )  # fmt: skip
    tape.saw("control", Woke(), [Send(PLANS, plan, 0)], 0.0)
    system.input(0.0, PLANS, 0, plan)
    for at_s, topic, slot, record in queries:
        system.input(at_s, topic, slot, record)
    system.run(UNTIL_S)
    return Taped(file, plan, tape)


# ---------------------------------------------------------------------- components that count


def the_account(taped: Taped) -> RunMetrics:
    return taped.seen_by(RunMetrics(taped.file.pipeline, accuracies(load_profile(taped.file))))


def the_simulation(taped: Taped) -> dict[str, Any]:
    """Return the row of `headrace simulate`."""
    run = Run(file=taped.file, policy="static", seed=0, arrivals=Renewal(1.0, 1.0))
    queries, account = len(taped.answers), the_account(taped)
    account.close(queries)
    return Ended(account, queries, 3.0, 0, 0.0, 0.0, 0.0, UNTIL_S).as_json(run)


def the_report(taped: Taped) -> LiveReport:
    return reported(taped.file, taped.answers, [taped.plan])


def the_load(taped: Taped) -> Tally:
    """Return the output of `headrace load`, with lost queries."""
    sent = [Sent(answer.id, answer.created_s) for answer in taped.answers]
    lost = [Sent(f"lost-{n}", 1.0) for n in range(LOST_QUERIES)]
    return tally([*sent, *lost], {answer.id: answer for answer in taped.answers})


def the_status(taped: Taped) -> Snapshot:
    """Return the last snapshot, as if everything had happened within its last second."""
    (*_, last) = (r for r in taped.sent(Report) if r.role == "egress")
    first = structs.replace(last, sent_s=last.sent_s - 1, counts={})
    board = board_of(taped.file.pipeline)
    board.see([taped.plan, first, last])
    return board.snapshot(last.sent_s)


def the_metrics(taped: Taped) -> dict[tuple[str, ...], Any]:
    """Return the samples by name and labels."""
    metrics = taped.seen_by(Metrics(taped.file.pipeline))
    return {(name, *labels): value for name, labels, value in metrics.samples()}


def the_log(taped: Taped, caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the fields of the debug log lines about ended queries, with their event."""
    caplog.set_level(logging.DEBUG, "headrace.node")
    taped.seen_by(Journal(taped.file.pipeline.name))
    told = [vars(record) for record in caplog.records]
    return [{"event": t["event"], **t["fields"]} for t in told if "outcome" in t["fields"]]


def the_picture(taped: Taped, folder: Path) -> Counts:
    """Return the last counter values of `headrace simulate --trace-out`."""
    with ChromeTrace(folder / "trace.json") as trace:
        taped.seen_by(trace)
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    counts: Counts = [each["args"] for each in events if each["name"] == "outcomes"][-1]
    return counts


def the_explanations(taped: Taped) -> Counts:
    """Return the first word of what `headrace explain` prints about each query."""
    heads = (waterfall_lines(explained(answer), "p", 100)[0].plain for answer in taped.answers)
    return Counter(re.findall(r": (\w+)", head)[0] for head in heads)


def found_by_outcome(taped: Taped) -> Counts:
    """Return the queries that `headrace explain --last OUTCOME` may find."""
    read = answer_reader(taped.file.pipeline)
    records: list[Any] = [Record(encode(answer)) for answer in taped.answers]
    return Counter(
        {name: sum(answer_that_ended(r, name, read) is not None for r in records)
         for name in OUTCOMES}
    )  # fmt: skip


@dataclass(frozen=True)
class Record:
    """A record of the results topic."""

    content: bytes

    def value(self) -> bytes:
        return self.content


def the_chaos(taped: Taped) -> Counts:
    """Return the sentence of `benchmarks.chaos`."""
    pairs = (part.split() for part in received_answers.ends(taped.answers).split(", "))
    return {name: int(count) for count, name in pairs}


def the_demo(taped: Taped) -> dict[str, Any]:
    """Return the JSON of a two-phase `headrace demo`."""
    middle_s = 1.0
    spans = (Span("first", "a", 0.0, middle_s), Span("second", "b", middle_s, UNTIL_S))
    sent = [Sent(answer.id, answer.created_s) for answer in taped.answers]
    by_id = {answer.id: answer for answer in taped.answers}
    seen = Seen(sent=sent, answers=by_id, score=lambda a, b: (1, 1), plans=())
    load = LoadResult(
        tally=tally(sent, by_id, seen.score), seconds=UNTIL_S, behind_ms=0.0, seed=0, inputs=1,
        arrivals=Phases((LoadPhase("all", UNTIL_S, 1.0, 1.0),)), phases=by_phase(spans, seen),
    )  # fmt: skip
    return DemoResult(load, the_report(taped), None, hardware_qps=None).as_json(())


def the_comparison(taped: Taped) -> tuple[Comparison, dict[str, Any]]:
    """Run `headrace compare --policy static static-best --json` with the tape as the result of
    every run."""
    row = the_simulation(taped)
    run = Run(file=taped.file, policy="static", seed=0, arrivals=Renewal(40.0, 3.0))
    found = search(run, lambda runs: [row for _ in runs])
    account = RunMetrics(taped.file.pipeline, accuracies(load_profile(taped.file)))
    recorder = Recorder(account, 0.5)
    for entry in taped.tape.entries:  # the simulation's order: the account, then its observer
        account.saw(entry.node, entry.event, entry.effects, entry.now)
        recorder.saw(entry.node, entry.event, entry.effects, entry.now)
    account.close(len(taped.answers))
    played = Played(row, recorder.recording(0.0, UNTIL_S))
    runs = {"static": (played,), STATIC_BEST: (played,)}
    made = Comparison(taped.file, (0,), runs, found)
    return made, comparison_as_json(made)


# ---------------------------------------------------------------------- comparisons


def some(counts: Mapping[str, Any]) -> dict[str, int]:
    """Return the non-zero counts of outcomes, without lost queries."""
    return {name: round(counts[name]) for name in OUTCOMES if name != LOST and counts.get(name)}


def test_every_count_of_outcomes_is_the_same(
    taped: Taped, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    marks = Counter((answer.late, answer.incomplete) for answer in taped.answers)
    assert marks[True, True] > 1  # cases that two different rules would count differently
    wanted = some(the_account(taped).counts)
    assert set(wanted) == {*OUTCOMES} - {LOST}
    assert some(the_simulation(taped)) == wanted
    assert some(the_report(taped).as_json()) == wanted
    assert some(the_load(taped).as_json()) == wanted
    assert the_load(taped).counts[LOST] == LOST_QUERIES
    status = the_status(taped).as_json()
    assert some({name: status.get(f"{name}_qps") for name in OUTCOMES}) == wanted
    metrics = the_metrics(taped)
    assert some({key[1]: n for key, n in metrics.items() if key[0] == "queries_total"}) == wanted
    lines = the_log(taped, caplog)
    assert Counter(line["outcome"] for line in lines) == wanted
    assert Counter(line["event"] for line in lines) == {f"query.{o}": n for o, n in wanted.items()}
    assert the_picture(taped, tmp_path) == wanted
    assert the_explanations(taped) == wanted
    assert some(found_by_outcome(taped)) == wanted
    assert the_chaos(taped) == wanted
    assert sum(map(received_answers.in_time, taped.answers)) == wanted[ANSWERED]
    demo = the_demo(taped)
    assert some(demo) == wanted
    phases = sum((Counter(some(phase)) for phase in demo["phases"]), Counter[str]())
    assert phases == wanted


def test_send_prints_the_outcome_of_its_query(taped: Taped) -> None:
    last_lines = (answer_text(answer).splitlines()[-1] for answer in taped.answers)
    said = Counter(re.split(r"\W", line)[0] for line in last_lines)
    assert said == some(the_account(taped).counts)


def test_why_queries_were_not_answered_is_the_same(
    taped: Taped, caplog: pytest.LogCaptureFixture
) -> None:
    found = the_report(taped).figures
    wanted = {why: round(share * found.queries) for why, share in found.drops.items()}
    assert len(wanted) > 3
    metrics = the_metrics(taped)
    misses = [(key[1:], n) for key, n in metrics.items() if key[0] == "misses_total"]
    assert summed((reason, n) for (_, _, reason), n in misses) == wanted
    assert Counter(line["kind"] for line in the_log(taped, caplog) if "kind" in line) == wanted
    status = the_status(taped).reasons
    assert summed((key.partition("/")[2], n) for key, n in status.items()) == {
        why: n for why, n in wanted.items() if why != LATE
    }
    # Also compare by outcome and task where both are available.
    account = the_account(taped)
    assert dict(misses) == account.misses


def summed(pairs: Iterable[tuple[Any, float]]) -> dict[Any, int]:
    """Return the sum of values per key."""
    found: dict[Any, int] = {}
    for key, value in pairs:
        found[key] = found.get(key, 0) + round(value)
    return found


def test_the_figures_of_a_run_are_the_same(taped: Taped) -> None:
    row, demo = the_simulation(taped), the_demo(taped)
    found, load = the_report(taped).as_json(), the_load(taped).as_json()
    status, metrics = the_status(taped), the_metrics(taped)
    queries = len(taped.answers)
    assert [row["queries"], found["queries"], demo["queries"]] == [queries] * 3
    for name in ("violation", "branch_violation", "accuracy"):
        assert row[name] == pytest.approx(found[name], abs=1e-6), name
    assert 1 - demo["slo_attainment"] == pytest.approx(row["violation"], abs=1e-6)
    for name in ("p50_ms", "p95_ms", "p99_ms"):
        assert row[name] == found[name], name
        assert load[name] == demo[name] == row[name], name
        # The status takes quantiles from report buckets, each a fifth longer than the previous one.
        assert getattr(status, name) == pytest.approx(row[name], rel=0.2), name
    seconds = metrics["query_seconds",]
    assert isinstance(seconds, Observed)
    assert seconds.count == the_account(taped).latency.count
    steps = {step["step"]: step["mean_ms"] for step in demo["time_spent"]}
    assert steps == pytest.approx(found["steps_ms"], abs=1e-3)


def test_compare_and_static_best_show_what_a_run_shows(taped: Taped) -> None:
    row, account = the_simulation(taped), the_account(taped)
    made, document = the_comparison(taped)
    queries = len(taped.answers)
    for policy in document["policies"]:
        means = {name: policy[name]["mean"] for name in FIGURES if policy[name] is not None}
        shares = {name: round(means[name] * queries) for name in OF_QUERIES}
        assert shares == {name: account.counts[name] for name in OF_QUERIES}
        for name in {*FIGURES} - {*OF_QUERIES, "yield"}:
            assert means.get(name) == (None if row[name] is None else pytest.approx(row[name]))
        assert means["yield"] == pytest.approx((1 - row["violation"]) * row["accuracy"], abs=1e-6)
    assert document["runs"] == [row, row]
    (difference,) = document["differences"]
    assert {difference[name]["mean"] for name in FIGURES if difference[name]} == {0.0}
    # Compare the figures by which static-best was chosen.
    assert len(document["static_best"]["tried"]) > 3
    for tried in document["static_best"]["tried"]:
        assert tried["yield"] == document["policies"][0]["yield"]["mean"]
        for name in ("violation", "branch_violation", "accuracy"):
            assert tried[name] == row[name]
    # Compare the curves over time, here and in the report of a live run.
    curve, live = made.runs["static"][0].recording, the_report(taped).recording
    assert curve.bad == live.bad
    assert sum(curve.demand_qps) * curve.width_s == queries
    assert sum(live.demand_qps) * live.width_s == queries
    assert max(share for _, share in curve.latency) == pytest.approx(
        account.latency.count / queries
    )
    assert [seconds for seconds, share in curve.latency if share == max(
        share for _, share in curve.latency)] == [pytest.approx(live.latency[-1][0])]  # fmt: skip


def test_violations_over_time_add_up_to_the_violating_items(taped: Taped) -> None:
    recording, account = the_report(taped).recording, the_account(taped)
    account.close(len(taped.answers))
    assert sum(recording.bad.values()) == account.bad_items > 0
