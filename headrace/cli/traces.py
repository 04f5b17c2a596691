"""Traces for OpenTelemetry."""

import time
from pathlib import Path

import click

from headrace.broker.connect import reached_running
from headrace.cli.shared_options import DurationType, bootstrap_option, pipeline_argument, read_file
from headrace.terminal import say


@click.command()
@pipeline_argument
@bootstrap_option
@click.option(
    "--otlp",
    "endpoint",
    default="http://localhost:4318",
    show_default=True,
    metavar="URL",
    help="Collector that takes OTLP over HTTP.",
)
@click.option(
    "--share",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    help="Of the answers in good time.",
)
@click.option("--since", type=DurationType(), help="Begin so long ago; without: now.")
@click.option("--for", "length", type=DurationType(), help="End after this time; without: Ctrl-C.")
def traces(
    file: Path,
    bootstrap: str | None,
    endpoint: str,
    share: float,
    since: float | None,
    length: float | None,
) -> None:
    """Export queries' traces to OpenTelemetry, from their answers.

    Kept are every query that was not answered in time, those that used 90 % of their time, those
    whose caller keeps the trace (header traceparent), and a share of the rest. Nodes do nothing
    for it.

    \b
    Example:
      headrace traces pipeline.yaml --otlp http://localhost:4318 --since 600s --for 30s
    """
    from headrace.traces.sampling import Sampling
    from headrace.traces.trace_export import after, export

    read = read_file(file)
    kafka = reached_running(bootstrap)
    since_s = None if since is None else time.time() - since
    say(f"exporting traces of {read.pipeline.name} to {endpoint}")
    seen, kept = export(
        kafka, read.pipeline, endpoint, Sampling(share), since_s=since_s, until=after(length)
    )
    say(f"{seen} answers, {kept} traces exported")
