"""promtool, Prometheus' own checker, accepts the alert rules."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.interop.go_programs import promtool

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "monitoring" / "alerts.yaml"
# Series in promtool's notation: a counter that misses one query in five, and one without misses;
# one query after a start; control apps without a plan, and none in charge; records that wait for
# 0.2 and for 40 s of the queries read; a pipeline without an ingress.
SERIES = {
    "rule_files": [str(RULES)],
    "evaluation_interval": "1m",
    "tests": [{
        "interval": "1m",
        "input_series": [
            {"series": 'headrace_queries_total{pipeline="ill",outcome="answered"}',
             "values": "0+80x20"},
            {"series": 'headrace_queries_total{pipeline="ill",outcome="late"}',
             "values": "0+20x20"},
            {"series": 'headrace_queries_total{pipeline="well",outcome="answered"}',
             "values": "0+80x20"},
            {"series": 'headrace_broker_up{pipeline="ill",instance="a:9400"}',
             "values": "1x10 0x10"},
            {"series": 'headrace_queries_read_total{pipeline="new"}', "values": "0x3 1x20"},
            {"series": 'headrace_queries_total{pipeline="new",outcome="answered"}',
             "values": "0x3 1x20"},
            {"series": 'headrace_dead_letters_total{pipeline="new"}', "values": "0x3 1x20"},
            {"series": 'headrace_nodes{pipeline="new",state="idle"}', "values": "3x20"},
            {"series": 'headrace_control_in_charge{pipeline="new",instance="a:9400"}',
             "values": "1x20"},
            {"series": 'headrace_nodes{pipeline="ill",state="ready"}', "values": "3x20"},
            {"series": 'headrace_queries_read_total{pipeline="ill"}', "values": "0+6000x20"},
            {"series": 'headrace_lag_records{pipeline="ill",topic="queries"}',
             "values": "4000x20"},
            {"series": 'headrace_queries_read_total{pipeline="well"}', "values": "0+600000x20"},
            {"series": 'headrace_lag_records{pipeline="well",topic="queries"}',
             "values": "2000x20"},
            {"series": 'headrace_nodes{pipeline="deaf",state="ready"}', "values": "3x20"},
            {"series": 'headrace_control_in_charge{pipeline="deaf"}', "values": "1x20"},
            {"series": 'headrace_control_in_charge{pipeline="ill",instance="a:9400"}',
             "values": "0x20"},
        ],
        "alert_rule_test": [
            {"alertname": "HeadraceMisses", "eval_time": "15m", "exp_alerts": [{
                "exp_labels": {"pipeline": "ill", "severity": "page"},
                "exp_annotations": {"summary": "ill misses 20% of its queries",
                                    "runbook": "drops rise"},
            }]},
            {"alertname": "HeadraceBrokerAway", "eval_time": "9m", "exp_alerts": []},
            {"alertname": "HeadraceBrokerAway", "eval_time": "15m", "exp_alerts": [{
                "exp_labels": {"pipeline": "ill", "instance": "a:9400", "severity": "page"},
                "exp_annotations": {"summary": "no broker answers a:9400 of ill",
                                    "runbook": "the broker is away"},
            }]},
            {"alertname": "HeadraceFailures", "eval_time": "15m", "exp_alerts": []},
            {"alertname": "HeadraceNoAnswers", "eval_time": "7m", "exp_alerts": []},
            {"alertname": "HeadraceDeadLetters", "eval_time": "5m", "exp_alerts": [{
                "exp_labels": {"pipeline": "new", "severity": "ticket"},
                "exp_annotations": {"summary": "records that nobody can read reach new",
                                    "runbook": "records on the dead-letter topic"},
            }]},
            {"alertname": "HeadraceLag", "eval_time": "15m", "exp_alerts": [{
                "exp_labels": {"pipeline": "ill", "topic": "queries", "severity": "ticket"},
                "exp_annotations": {"summary": "ill: as many records of queries wait "
                                               "as queries come in 40s",
                                    "runbook": "latency rises, nothing is dropped"},
            }]},
            {"alertname": "HeadraceNoIngress", "eval_time": "10m", "exp_alerts": [{
                "exp_labels": {"pipeline": "deaf", "severity": "page"},
                "exp_annotations": {"summary": "deaf has no ingress: nobody reads its queries",
                                    "runbook": "no ingress exports metrics"},
            }]},
            {"alertname": "HeadraceNoControl", "eval_time": "5m", "exp_alerts": [{
                "exp_labels": {"pipeline": "ill", "severity": "page"},
                "exp_annotations": {
                    "summary": "ill has no control app: no plans, no hand-over of lost workers",
                    "runbook": "a command gets no answer",
                },
            }]},
        ],
    }],
}  # fmt: skip

# Pipelines in which no alert fires: their metrics, by name and labels, at one value a minute.
UP = {
    "nodes{state=ready}": "3x30", "nodes{state=failed}": "0x30", "nodes{state=stuck}": "0x30",
    "broker_up": "1x30", "control_in_charge": "1x30", "plan_feasible": "1x30",
    "nodes_with_other_file": "0x30", "dead_letters_total": "0x30",
    "queries_total{outcome=failed}": "0x30", "queries_total{outcome=late}": "0x30",
}  # fmt: skip
FINE = {
    "healthy": UP | {
        "queries_read_total": "0+6000x30", "queries_total{outcome=answered}": "0+5800x30",
        "queries_total{outcome=dropped}": "0+200x30", "lag_records{topic=queries}": "90x30",
    },
    "idle": UP | {
        "queries_read_total": "70x30", "queries_total{outcome=answered}": "70x30",
        "queries_total{outcome=dropped}": "0x30", "lag_records{topic=queries}": "0x30",
    },
    "paused": UP | {
        "queries_read_total": "0+600x30", "queries_total{outcome=answered}": "0+600x9 5400x21",
        "queries_total{outcome=refused}": "0x10 600+600x20",
        "misses_total{outcome=refused,task=ingress,reason=paused}": "_x10 600+600x20",
        "lag_records{topic=queries}": "8x30",
    },
    # It starts after five minutes, the control app a minute later, and gets its first query then.
    "fresh": {name: f"_x5 {values}" for name, values in UP.items()} | {
        "control_in_charge": "_x6 1x30", "plan_feasible": "_x7 1x30",
        "queries_read_total": "_x5 0x5 1x30", "queries_total{outcome=answered}": "_x5 0x5 1x30",
        "lag_records{topic=queries}": "_x5 0x5 0x30",
    },
}  # fmt: skip
# What makes an alert fire in a healthy pipeline, by the alert.
FAULTS: dict[str, dict[str, str]] = {
    "HeadraceMisses": {"queries_total{outcome=late}": "0+600x30"},
    "HeadraceFailures": {"queries_total{outcome=failed}": "0+1x30"},
    "HeadraceNoAnswers": {
        f"queries_total{{outcome={each}}}": "0x30" for each in ("answered", "dropped")
    },
    "HeadraceNodeFailed": {"nodes{state=stuck}": "1x30"},
    "HeadraceBrokerAway": {"broker_up": "0x30"},
    "HeadracePlanInfeasible": {"plan_feasible": "0x30"},
    "HeadraceNoControl": {"control_in_charge": "0x30"},
    "HeadraceNoIngress": {"queries_read_total": "_x30"},
    "HeadraceLag": {"lag_records{topic=queries}": "6000x30"},
    "HeadraceDeadLetters": {"dead_letters_total": "0+1x30"},
    "HeadraceOtherFile": {"nodes_with_other_file": "1x30"},
}  # fmt: skip

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def series(pipeline: str, metrics: dict[str, str]) -> list[dict[str, str]]:
    """Return a pipeline's series in promtool's notation."""
    found = []
    for metric, values in metrics.items():
        name, _, labels = metric.partition("{")
        own = [f'{k}="{v}"' for k, v in (x.split("=") for x in labels.rstrip("}").split(",") if x)]
        every = ",".join((f'pipeline="{pipeline}"', f'instance="{pipeline}:9400"', *own))
        found.append({"series": f"headrace_{name}{{{every}}}", "values": values})
    return found


def firing(folder: Path, metrics: dict[str, dict[str, str]]) -> set[tuple[str, str]]:
    """Return the alerts that fire after 12 or 25 minutes, with their pipelines."""
    names = [rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]]
    tests = folder / "tests.yaml"
    tests.write_text(yaml.safe_dump({
        "rule_files": [str(RULES)], "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": [row for name, own in metrics.items() for row in series(name, own)],
            "alert_rule_test": [
                {"alertname": name, "eval_time": at, "exp_alerts": []}
                for name in names for at in ("12m", "25m")
            ],
        }],
    }))  # fmt: skip
    done = checked("test", "rules", tests)
    got = [line for line in (done.stdout + done.stderr).splitlines() if "Labels:" in line]
    found = [dict(re.findall(r'(\w+)="(.*?)"', line)) for line in got]
    return {(each["alertname"], each["pipeline"]) for each in found if "alertname" in each}


def checked(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [promtool(), *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_promtool_takes_the_rules_and_refuses_a_broken_one(tmp_path: Path) -> None:
    done = checked("check", "rules", RULES)
    count = len(yaml.safe_load(RULES.read_text())["groups"][0]["rules"])
    assert (done.returncode, f"{count} rules found" in done.stdout) == (0, True), done.stderr
    broken = tmp_path / "broken.yaml"
    broken.write_text(RULES.read_text().replace("sum by (pipeline) (rate(", "sum by (rate(", 1))
    assert checked("check", "rules", broken).returncode != 0


def test_no_alert_fires_in_a_pipeline_that_is_healthy_idle_paused_or_fresh(tmp_path: Path) -> None:
    """A pipeline that was paused missed all of its queries, and paged."""
    assert firing(tmp_path, FINE) == set()


def test_every_alert_fires_and_none_beside_it(tmp_path: Path) -> None:
    ill = {name: FINE["healthy"] | fault for name, fault in FAULTS.items()}
    assert firing(tmp_path, ill) == {(name, name) for name in FAULTS}
    assert list(FAULTS) == [
        rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    ]


def test_alerts_fire_for_the_expected_series(tmp_path: Path) -> None:
    tests = tmp_path / "tests.yaml"
    tests.write_text(yaml.safe_dump(SERIES))
    done = checked("test", "rules", tests)
    assert done.returncode == 0, done.stdout + done.stderr
