"""Write deploy/monitoring from the tables below: `make reference` runs this script.

``ALERTS`` become rules of Prometheus, ``PANELS`` a dashboard of Grafana, in which a threshold of an
alert is a line. A metric that ``metric_table.py`` lacks raises ``KeyError``;
``tests/contract/test_monitoring.py`` holds the committed files to what this writes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from streams.observers.metric_table import BY_NAME, PREFIX

FOLDER = Path(__file__).parents[1] / "deploy" / "monitoring"
HEAD = (
    "# Alert rules for Prometheus (rule_files:). docs/how-to/runbook.md says what to look at for"
    " each.\n# Written by `make reference` from docs/generate_monitoring.py.\n"
)
PAGE, TICKET = "page", "ticket"
CHOSEN = 'pipeline=~"$pipeline"'  # in the dashboard


def series(name: str, where: str = "", part: str = "") -> str:
    """Return the series of a metric, of its ``part`` where a histogram or summary has several."""
    selected = f"{{{where}}}" if where else ""
    return f"{PREFIX}{BY_NAME[name].name}{part}{selected}"


def rate(name: str, where: str = "", part: str = "", over: str = "5m") -> str:
    """Return the increase a second of a counter."""
    return f"rate({series(name, where, part)}[{over}])"


def total(by: str, expression: str) -> str:
    """Return the sums by these labels, "": the sum of all."""
    return f"sum by ({by}) ({expression})" if by else f"sum({expression})"


def workers_by_instance(where: str) -> str:
    """Return the workers of each instance: its nodes, less the ingress at an edge process."""
    nodes = total("instance", series("nodes", where))
    ingresses = f"count by (instance) ({series('queries_read_total', where)})"
    return f"({nodes} - ({ingresses} or 0 * {nodes}))"


def behind_s(where: str = "", over: str = "5m") -> str:
    """Return the records of each topic that wait, in seconds of the queries read: a fast pipeline
    has more work in flight than a slow one."""
    read = total("pipeline", rate("queries_read_total", where, over=over))
    waiting = total("pipeline, topic", series("lag_records", where))
    return f"{waiting} / on (pipeline) group_left () {read}"


def missed() -> str:
    """Return the share of queries that were not answered in time. Queries that a paused pipeline
    refused do not count."""
    bad = total("pipeline", rate("queries_total", 'outcome!="answered"'))
    paused = total("pipeline", rate("misses_total", 'reason="paused"'))
    every = total("pipeline", rate("queries_total"))
    return f"({bad} - ({paused} or 0 * {bad})) / {every}"


# ---------------------------------------------------------------------- alerts


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A rule: it fires where ``value`` compares with ``threshold`` for ``lasting``; without a
    threshold, where there is a ``value``."""

    name: str
    value: str
    compare: str = ">"
    threshold: float | None = None
    lasting: str = ""
    severity: str
    summary: str
    runbook: str  # how a row of the runbook begins

    @property
    def limit(self) -> str:
        """The comparison in PromQL."""
        return "" if self.threshold is None else f" {self.compare} {self.threshold:g}"


ALERTS = (
    Alert(
        name="Misses",
        value=missed(),
        threshold=0.05,
        lasting="5m",
        severity=PAGE,
        summary="{{ $labels.pipeline }} misses {{ $value | humanizePercentage }} of its queries",
        runbook="drops rise",
    ),
    Alert(
        name="Failures",
        value=total("pipeline", rate("queries_total", 'outcome="failed"')),
        threshold=0,
        lasting="5m",
        severity=TICKET,
        summary="operators or combine of {{ $labels.pipeline }} raise",
        runbook="queries fail",
    ),
    Alert(
        name="NoAnswers",
        value=total("pipeline", rate("queries_read_total"))
        + " > 0 unless "
        + total("pipeline", rate("queries_total"))
        + " > 0",
        lasting="2m",
        severity=PAGE,
        summary="{{ $labels.pipeline }} reads queries and answers none",
        runbook="a worker is stuck or failed",
    ),
    Alert(
        name="NodeFailed",
        value=total("pipeline, instance", series("nodes", 'state=~"failed|stuck"')),
        threshold=0,
        lasting="1m",
        severity=PAGE,
        summary="a node of {{ $labels.pipeline }} at {{ $labels.instance }} has failed or is stuck",
        runbook="a worker is stuck or failed",
    ),
    Alert(
        name="BrokerAway",
        value=f"min by (pipeline, instance) ({series('broker_up')})",
        compare="==",
        threshold=0,
        lasting="1m",
        severity=PAGE,
        summary="no broker answers {{ $labels.instance }} of {{ $labels.pipeline }}",
        runbook="the broker is away",
    ),
    Alert(
        name="PlanInfeasible",
        value=f"min by (pipeline) ({series('plan_feasible')})",
        compare="==",
        threshold=0,
        lasting="5m",
        severity=TICKET,
        summary="the devices of {{ $labels.pipeline }} do not suffice for its plan",
        runbook="no plan, or an infeasible one",
    ),
    Alert(
        name="NoControl",
        value=total("pipeline", series("nodes"))
        + " unless "
        + total("pipeline", series("control_in_charge"))
        + " > 0",
        lasting="2m",
        severity=PAGE,
        summary="{{ $labels.pipeline }} has no control app: no plans, no hand-over of lost workers",
        runbook="a command gets no answer",
    ),
    Alert(
        name="NoIngress",
        value=total("pipeline", series("nodes"))
        + " unless "
        + total("pipeline", series("queries_read_total")),
        lasting="2m",
        severity=PAGE,
        summary="{{ $labels.pipeline }} has no ingress: nobody reads its queries",
        runbook="no ingress exports metrics",
    ),
    Alert(
        name="Lag",
        value=behind_s(),
        threshold=30,
        lasting="5m",
        severity=TICKET,
        summary="{{ $labels.pipeline }}: as many records of {{ $labels.topic }} wait"
        " as queries come in {{ $value | humanizeDuration }}",
        runbook="latency rises, nothing is dropped",
    ),
    Alert(
        name="DeadLetters",
        value=total("pipeline", f"increase({series('dead_letters_total')}[15m])"),
        threshold=0,
        severity=TICKET,
        summary="records that nobody can read reach {{ $labels.pipeline }}",
        runbook="records on the dead-letter topic",
    ),
    Alert(
        name="OtherFile",
        value=f"max by (pipeline) ({series('nodes_with_other_file')})",
        threshold=0,
        lasting="5m",
        severity=TICKET,
        summary="roles of {{ $labels.pipeline }} run another pipeline file than its control app",
        runbook="no plan, or an infeasible one",
    ),
)


def alert_rules() -> str:
    """Return the file of rules."""
    groups = [{"name": "headrace", "rules": [_rule(alert) for alert in ALERTS]}]
    return HEAD + yaml.safe_dump({"groups": groups}, sort_keys=False, width=100)


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": f"Headrace{alert.name}",
        "expr": alert.value + alert.limit,
        **({"for": alert.lasting} if alert.lasting else {}),
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "runbook": alert.runbook},
    }


# ---------------------------------------------------------------------- the dashboard


@dataclass(frozen=True, slots=True)
class Panel:
    """A time series: its expressions by their legends, with the threshold of an alert as a line."""

    title: str
    unit: str
    expressions: Mapping[str, str]
    alert: str = ""


def recent(name: str, part: str = "") -> str:
    """Return the increase a second of a counter of the chosen pipelines.

    Grafana's interval covers four scrapes, and a whole step where a panel shows weeks.
    """
    return rate(name, CHOSEN, part, over="$__rate_interval")


def quantile(q: float, name: str, by: str = "le") -> str:
    """Return a quantile of a histogram."""
    return f"histogram_quantile({q:g}, {total(by, recent(name, '_bucket'))})"


PANELS = (
    Panel(
        "Queries by outcome", "reqps", {"{{outcome}}": total("outcome", recent("queries_total"))}
    ),
    Panel(
        "Demand and capacity",
        "reqps",
        {
            name: total("", series(f"plan_{name}_queries_per_second", CHOSEN))
            for name in ("demand", "capacity")
        },
    ),
    Panel(
        "Latency of queries",
        "s",
        {f"p{100 * q:g}": quantile(q, "query_seconds") for q in (0.5, 0.95, 0.99)},
    ),
    Panel(
        "Misses by task and reason",
        "reqps",
        {"{{task}}: {{reason}}": total("task, reason", recent("misses_total"))},
    ),
    Panel("p99 of the queues", "s", {"{{task}}": quantile(0.99, "queue_seconds", "le, task")}),
    Panel(
        "Devices in use, 0 to 1 each",
        "percentunit",
        {
            "{{instance}}": total("instance", recent("device_busy_seconds_total"))
            + f" / {workers_by_instance(CHOSEN)}"
        },
    ),
    Panel(
        "Accuracy served",
        "percentunit",
        {
            "expected": total("", recent("served_accuracy_ratio", "_sum"))
            + " / "
            + total("", recent("served_accuracy_ratio", "_count"))
        },
    ),
    Panel(
        "Workers by variant",
        "short",
        {"{{task}}/{{variant}}": total("task, variant", series("plan_workers", CHOSEN))},
    ),
    Panel(
        "Records that wait, in seconds of queries",
        "s",
        {"{{topic}}": behind_s(CHOSEN, over="$__rate_interval")},
        alert="Lag",
    ),
)
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, ABREAST = 8, 8, 3  # of 24 columns
VARIABLES = [
    {"name": "datasource", "type": "datasource", "query": "prometheus"},
    {
        "name": "pipeline", "type": "query", "datasource": SOURCE,
        "query": f"label_values({series('nodes')}, pipeline)",
        "includeAll": True, "multi": True, "refresh": 2,
    },
]  # fmt: skip


def dashboard() -> str:
    """Return the file of the dashboard."""
    whole = {
        "title": "Headrace", "uid": "headrace", "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"}, "refresh": "10s",
        "templating": {"list": VARIABLES},
        "panels": [_panel(at, panel) for at, panel in enumerate(PANELS)],
    }  # fmt: skip
    return json.dumps(whole, indent=1) + "\n"


def _panel(at: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(at, ABREAST)
    place = {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT}
    return {
        "id": at + 1, "type": "timeseries", "title": panel.title, "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, **_line(panel.alert)}, "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + number), "expr": expression, "legendFormat": legend}
            for number, (legend, expression) in enumerate(panel.expressions.items())
        ],
    }  # fmt: skip


def _line(alert: str) -> dict[str, Any]:
    if not alert:
        return {}
    (threshold,) = (each.threshold for each in ALERTS if each.name == alert)
    steps = [{"color": "green", "value": None}, {"color": "red", "value": threshold}]
    return {
        "custom": {"thresholdsStyle": {"mode": "line"}},
        "thresholds": {"mode": "absolute", "steps": steps},
    }


FILES = {"alerts.yaml": alert_rules, "dashboard.json": dashboard}


def main() -> None:
    """Write the files that differ."""
    for name, written in FILES.items():
        path = FOLDER / name
        if path.read_text(encoding="utf-8") != written():
            path.write_text(written(), encoding="utf-8")


if __name__ == "__main__":
    main()
