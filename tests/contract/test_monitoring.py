"""The alert rules and the dashboard of deploy/ match the output of docs/generate_monitoring.py and
use existing metrics and labels."""

import json
import re
from pathlib import Path

import pytest
import yaml

from docs.generate_monitoring import ALERTS, FILES, FOLDER, PANELS, series
from streams.observers.metric_table import BY_NAME, HISTOGRAM, PREFIX, SUMMARY

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
DRAWN = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in RULES} | {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DRAWN
    for target in panel["targets"]
}
PARTS = {HISTOGRAM: ("_bucket", "_sum", "_count"), SUMMARY: ("_sum", "_count")}
OF_THE_SCRAPE = {"pipeline", "instance", "le"}  # labels of every metric, or added by Prometheus
SELECTED = re.compile(PREFIX + r"([a-z_]+)(?:\{([^}]*)\})?")


def metric(name: str) -> str:
    """Return the name in the table of metrics for a name in an expression."""
    for found in BY_NAME.values():
        if name in (found.name, *(found.name + part for part in PARTS.get(found.kind, ()))):
            return found.name
    raise AssertionError(f"there is no metric {PREFIX}{name}")


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_as_the_tables_write_it(name: str) -> None:
    assert (FOLDER / name).read_text() == FILES[name](), "run `make reference`"
    assert sorted(FILES) == sorted(path.name for path in FOLDER.iterdir())


def test_a_line_of_the_dashboard_is_the_threshold_of_its_alert() -> None:
    lines = {
        panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"]
        for panel in DRAWN
        if "thresholds" in panel["fieldConfig"]["defaults"]
    }
    thresholds = {each.name: each.threshold for each in ALERTS}
    assert lines == {each.title: thresholds[each.alert] for each in PANELS if each.alert}


def test_rates_of_the_dashboard_cover_several_scrapes_at_any_scrape_interval() -> None:
    """Over a minute, Prometheus' default interval between scrapes, most panels had no data."""
    drawn = [target["expr"] for panel in DRAWN for target in panel["targets"]]
    assert set(re.findall(r"\[(.*?)\]", " ".join(drawn))) == {"$__rate_interval"}


def test_an_expression_with_an_unknown_metric_is_refused() -> None:
    with pytest.raises(KeyError, match="no_such_total"):
        series("no_such_total")


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_an_expression_uses_existing_metrics_and_labels(expression: str) -> None:
    selected = SELECTED.findall(expression)
    assert selected
    known = set(OF_THE_SCRAPE)
    for name, labels in selected:
        own = {*BY_NAME[metric(name)].labels, *OF_THE_SCRAPE}
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", labels)) <= own
        known |= own
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    assert {label.strip() for group in grouped for label in group.split(",")} <= known


def test_every_alert_points_at_a_row_of_the_runbook() -> None:
    runbook = (ROOT / "docs" / "how-to" / "runbook.md").read_text().replace("`", "")
    for rule in RULES:
        assert f"| {rule['annotations']['runbook']}" in runbook, rule["alert"]
