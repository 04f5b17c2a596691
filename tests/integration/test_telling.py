"""Running roles provide logs and metrics: scraped over HTTP, and searchable by a query's id."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.rig import Rig
from headrace.broker import local_broker as local
from schemas.records import ANSWERED
from streams.kafka.connectivity import REMIND_S
from streams.observers.metric_table import METRICS, PREFIX

pytestmark = pytest.mark.kafka

OPERATORS = "benchmarks.squares"
PIPELINE = {
    "slo": "20s",
    "input": "raw",
    "combine": f"{OPERATORS}:total",
    "egress_partitions": 2,
    "tasks": {
        "split": {
            "slots": 2,
            "children": ["square"],
            "variants": {"plain": {"operator": f"{OPERATORS}:Split", "batch": 8, "replicas": 1}},
        },
        "square": {
            "slots": 2,
            "variants": {"plain": {"operator": f"{OPERATORS}:Square", "batch": 8, "replicas": 1}},
        },
    },
    "cluster": {"devices": {"cpu": 2}, "metrics_port": 0},
}
KINDS = {"control": "control", "egress-0": "egress", "ingress-0": "ingress"}
AWAY_S = 2.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def rig(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Run a pipeline on a broker of its own; yield it after twenty queries."""
    with local.borrow(home) as broker:
        rig = Rig(broker.bootstrap, tmp_path_factory.mktemp("telling"), PIPELINE)
        rig.variables = {"HEADRACE_LOG_FORMAT": "json", "HEADRACE_LOG_LEVEL": "debug"}
        try:
            rig.up()
            for number in range(20):
                rig.ask(b"%d" % number, name=f"told-{number}")
            rig.put(b"", [])  # an empty value: a dead letter and a refusal
            rig.settle()
            yield rig
        finally:
            rig.close()


def lines(rig: Rig, role: str) -> list[dict[str, Any]]:
    """Return every line of a role's log; each must be JSON."""
    return [json.loads(line) for line in rig.log(role).read_text().splitlines()]


def told(rig: Rig, role: str, query: str) -> list[str]:
    """Return the events of a query in a role's log."""
    return [line["event"] for line in lines(rig, role) if line.get("query") == query]


def scraped(rig: Rig, role: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a role by name and label values, without the pipeline label."""
    (started,) = [line for line in lines(rig, role) if line["event"] == "role.started"]
    with urlopen(started["metrics"], timeout=10) as answer:
        text = answer.read().decode()
    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    named = [sample for sample in samples if sample.name.startswith(PREFIX)]
    assert {sample.labels.pop("pipeline", "") for sample in named} == {rig.name}
    return {
        (sample.name.removeprefix(PREFIX), *(sample.labels[k] for k in sorted(sample.labels))): (
            sample.value
        )
        for sample in samples
    }


def worker_of(rig: Rig, task: str) -> str:
    (found,) = [lease.worker for lease in rig.plan.leases if lease.task == task]
    return found


def test_every_role_answers_with_the_metrics_of_its_kind_and_no_others(rig: Rig) -> None:
    for role in rig.roles:
        kind = KINDS.get(role, "worker")
        known = {m.name for roles, each in METRICS.items() for m in each
                 if roles == "every" or kind in roles.split(", ")}  # fmt: skip
        ends = ("_bucket", "_sum", "_count")
        named = {name for name, *_ in scraped(rig, role) if not name.startswith("process_")}
        found = {next((n.removesuffix(e) for e in ends if n.endswith(e)), n) for n in named}
        assert found <= known, role
        assert "plan_epoch" in found, role


def test_the_metrics_of_egress_match_its_answers(rig: Rig) -> None:
    assert len([a for a in rig.answers if a.outcome == ANSWERED and not a.late]) == 20
    found = scraped(rig, "egress-0")
    assert found["queries_total", "answered"] == 20
    assert found["queries_total", "refused"] == 1
    assert found["misses_total", "refused", "bad_input", "ingress"] == 1
    assert found["query_seconds_count",] == 20
    assert found["broker_up",] == 1
    assert found["nodes", "ready"] == 1


def test_workers_tell_how_long_their_stage_took(rig: Rig) -> None:
    found = scraped(rig, worker_of(rig, "split"))
    assert found["items_finished_total", "split", "plain"] == 20
    assert found["queue_seconds_count", "split", "plain"] == 20
    assert found["compute_seconds_count", "split", "plain"] > 0
    assert found["compute_seconds_sum", "split", "plain"] == pytest.approx(
        found["device_busy_seconds_total", "split", "plain"]
    )
    assert found["load_seconds_count", "split", "plain"] == 1


def test_the_lag_of_what_is_read_goes_to_zero(rig: Rig) -> None:
    topics = {"ingress-0": "queries", "egress-0": "outputs", worker_of(rig, "split"): "work.split"}
    for role, topic in topics.items():
        rig.until(lambda r=role, t=topic: scraped(rig, r).get(("lag_records", t)) == 0, "no lag")


def test_the_control_app_tells_the_plan_in_force(rig: Rig) -> None:
    found = scraped(rig, "control")
    assert found["plan_epoch",] == rig.plan.epoch
    assert found["plan_feasible",] == 1
    assert found["plan_workers", "split", "plain"] == 1
    before = found.get(("commands_total", "done"), 0)
    rig.command("replan")
    assert scraped(rig, "control")["commands_total", "done"] == before + 1
    answered = [line for line in lines(rig, "control") if line["event"] == "command.done"][-1]
    assert answered["action"] == "replan"


def test_a_query_is_followed_through_the_logs_by_its_id(rig: Rig) -> None:
    assert told(rig, "ingress-0", "told-7") == ["query.read", "work.sent"]
    assert told(rig, worker_of(rig, "split"), "told-7") == ["work.sent"]
    assert "work.sent" in told(rig, worker_of(rig, "square"), "told-7")
    assert told(rig, "egress-0", "told-7") == ["query.answered"]


def test_a_dead_letter_is_logged_as_a_warning_with_its_topic(rig: Rig) -> None:
    (letter,) = [line for line in lines(rig, "ingress-0") if line["event"] == "dead-letter"]
    assert (letter["level"], letter["topic"]) == ("warning", "queries")
    assert "empty" in letter["reason"]


def test_a_broker_that_goes_and_comes_back_is_two_lines_of_each_role(rig: Rig, home: Path) -> None:
    with ThreadPoolExecutor(1) as beside:
        stopping = beside.submit(local.stop, home)
        rig.until(stopping.done, "the broker to stop")
        rig.pass_time(AWAY_S)
        assert scraped(rig, "egress-0")["broker_up",] == 0
        starting = beside.submit(local.start, home)
        rig.until(starting.done, "the broker to start", 70.0)
    rig.until(rig.serves, "every role to serve")
    rig.until(lambda: scraped(rig, "egress-0")["broker_up",] == 1, "the broker to be back")
    for role in rig.roles:
        rig.until(lambda r=role: "broker.back" in str(lines(rig, r)), f"{role} to tell")
        found = [line for line in lines(rig, role) if line["level"] in ("warning", "error")]
        away = [line for line in found if line["event"] == "broker.away"]
        (back,) = [line for line in lines(rig, role) if line["event"] == "broker.back"]
        assert len(away) == 1 + back["away_s"] // REMIND_S, away
        assert [line for line in found if line["event"] == "log"] == []
