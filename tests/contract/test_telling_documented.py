"""docs/reference/logs-and-metrics.md lists every event, and its expressions use existing
metrics."""

import logging
import re
from pathlib import Path

import click

from headrace.cli.main import headrace
from headrace.config.cluster import Cluster
from headrace.config.topology import roles
from headrace.gateway import certificates
from headrace.roles.input_topic import input_watch
from headrace.roles.observability import observability as observing
from headrace.roles.observability.log_format import FORMAT_VARIABLE, FORMATS, LEVEL_VARIABLE
from headrace.roles.observability.log_format import LEVELS as CHOICES
from headrace.roles.observability.log_options import METRICS_HOST_VARIABLE, METRICS_VARIABLE
from streams.control_app import app as control_app
from streams.kafka import connectivity as presence
from streams.kafka import former_notices, missing_copies, offset_ledger, throttling
from streams.kafka.admin import topic_settings
from streams.kafka.leases import write_barrier
from streams.kafka.reading import partition_reader
from streams.observers import clock_skew, file_mismatch, journal, size_series
from streams.observers import log_lines as lines
from streams.observers.metric_table import HISTOGRAM, METRICS, PREFIX
from streams.observers.metrics import BOUNDS_S

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "logs-and-metrics.md").read_text(encoding="utf-8")
TUTORIAL = (DOCS / "tutorial" / "first-pipeline.md").read_text(encoding="utf-8")
EVENTS = {
    **lines.LEVELS,
    **clock_skew.LEVELS,
    **file_mismatch.LEVELS,
    **size_series.LEVELS,
    **presence.LEVELS,
    **partition_reader.LEVELS,
    **offset_ledger.LEVELS,
    **missing_copies.LEVELS,
    **throttling.LEVELS,
    **write_barrier.LEVELS,
    **control_app.LEVELS,
    **observing.LEVELS,
    **input_watch.LEVELS,
    **former_notices.LEVELS,
    **topic_settings.LEVELS,
    **certificates.LEVELS,
}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading, as written."""
    section = PAGE.split(f"\n{heading}\n")[1]
    table = re.search(r"^\|.*?(?:\n(?!\|)|\Z)", section, re.DOTALL | re.MULTILINE)
    assert table
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table[0].strip().splitlines()[2:]
    ]


def test_every_event_is_listed_with_its_level() -> None:
    found = {row[0].strip("`"): row[1] for row in rows("## Events")}
    assert found == {event: logging.getLevelName(level).lower() for event, level in EVENTS.items()}


def test_the_expressions_use_existing_metrics() -> None:
    every = [m for metrics in METRICS.values() for m in metrics]
    known = {PREFIX + m.name for m in every}
    for metric in every:
        known |= {f"{PREFIX}{metric.name}{end}" for end in ("_sum", "_count")}
        known |= {f"{PREFIX}{metric.name}_bucket"} if metric.kind == HISTOGRAM else set()
    section = PAGE.split("### Questions")[1].split("### Classes")[0]
    named = set(re.findall(r"headrace_\w+", section))
    assert named <= known
    assert len(named) > 5


def test_the_tutorial_asks_the_port_of_the_role_that_has_the_metric() -> None:
    first, port, metric = re.findall(
        r"--metrics-port (\d+)\n(?:headrace load .*\n)curl -s localhost:(\d+)/metrics \| grep "
        r"headrace_(\w+)",
        TUTORIAL,
    )[0]
    (asked,) = (
        role.kind
        for role in roles(Cluster(devices=(("cpu", 2),), metrics_port=int(first)))
        if role.metrics_port == int(port)
    )
    assert metric in [each.name for each in METRICS[asked]]


def test_options_variables_and_limits_are_listed() -> None:
    for variable in (FORMAT_VARIABLE, LEVEL_VARIABLE, METRICS_VARIABLE, METRICS_HOST_VARIABLE):
        assert f"`{variable}`" in PAGE
    for choice in (*FORMATS, *CHOICES):
        assert f"`{choice}`" in PAGE
    assert f"{journal.MOST} times in {journal.WINDOW_S:g} s" in PAGE
    assert f"one every {presence.REMIND_S:g} s" in PAGE
    below = ", ".join(f"{bound * 1e3:g}" for bound in BOUNDS_S if bound < 1)
    above = ", ".join(f"{bound:g}" for bound in BOUNDS_S if bound >= 1)
    assert f"bounds {below} ms, {above} s" in PAGE


def test_every_role_and_up_have_the_options() -> None:
    for name in ("ingress", "worker", "egress", "control", "up"):
        command = headrace.commands[name]
        assert isinstance(command, click.Command)
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--log-format", "--log-level", "--metrics-port"} <= options
