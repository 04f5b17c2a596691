"""``headrace report``: the outcomes of a live pipeline's queries."""

import time
from pathlib import Path

import click

from headrace.cli.shared_options import (
    DurationType,
    bootstrap_option,
    json_option,
    pipeline_argument,
    read_file,
)
from headrace.terminal import print_json, print_text, say


@click.command()
@pipeline_argument
@click.option("--last", type=DurationType(), default="600s", show_default=True,
              help="Queries made within this time from now back.")  # fmt: skip
@click.option(
    "--html", type=click.Path(path_type=Path), help="Write a page with charts, for any browser."
)
@bootstrap_option
@json_option
def report(file: Path, last: float, html: Path | None, bootstrap: str | None, as_json: bool) -> int:
    """Report the outcomes of a live pipeline's queries.

    Outcomes, latencies, accuracy, devices, and drops by task and reason, read from the answers
    and plans on the broker, so that it also works after the pipeline has ended. A certificate of
    the simulation beside the file (headrace fidelity) is shown.

    \b
    Example:
      headrace report pipeline.yaml --last 60s
      headrace report pipeline.yaml --html page.html
    """
    from headrace.atomic_file import writable, write_page
    from headrace.broker.connect import reached
    from headrace.report.live_report import live_report
    from headrace.report.report_text import report_page, report_text

    if html is not None:
        writable(html)
    made = live_report(read_file(file), reached(bootstrap), time.time(), last)
    if html is not None:
        write_page(html, report_page(made))
        say(f"wrote {html}")
    print_json(made.as_json()) if as_json else print_text(report_text(made))
    return 0
