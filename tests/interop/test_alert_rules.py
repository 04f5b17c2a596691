"""promtool, Prometheus' own checker, accepts the alert rules."""

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

pytestmark = [pytest.mark.interop, pytest.mark.slow]


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


def test_alerts_fire_for_the_expected_series(tmp_path: Path) -> None:
    tests = tmp_path / "tests.yaml"
    tests.write_text(yaml.safe_dump(SERIES))
    done = checked("test", "rules", tests)
    assert done.returncode == 0, done.stdout + done.stderr
