"""``headrace report`` and ``fidelity``: a live run's figures, alone and beside a prediction."""

import time
from pathlib import Path
from typing import Any

import click

from headrace.cli.shared_options import (
    DurationType,
    bootstrap_option,
    json_option,
    pipeline_argument,
    read_deployed,
    read_file,
)
from headrace.errors import UNSUCCESSFUL
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
    and plans on the broker, so that it also works after the pipeline has ended. The newest
    certificate of the simulation beside the file (headrace fidelity) is shown.

    \b
    Example:
      headrace report pipeline.yaml --last 60s
      headrace report pipeline.yaml --html page.html
    """
    from headrace.atomic_file import writable, write_page
    from headrace.broker.connect import reached_running
    from headrace.report.live_report import live_report
    from headrace.report.report_text import report_page, report_text

    if html is not None:
        writable(html)
    made = live_report(read_file(file), reached_running(bootstrap), time.time(), last)
    if html is not None:
        write_page(html, report_page(made))
        say(f"wrote {html}")
    print_json(made.as_json()) if as_json else print_text(report_text(made))
    return 0


@click.command()
@pipeline_argument
@click.option("--arrivals", type=click.Path(path_type=Path), help="A file of arrival times.")
@click.option("--dilate", type=click.FloatRange(1), default=1.0, show_default=True,
              help="Slow time by this factor live; for emulated devices.")  # fmt: skip
@click.option("--policy", metavar="NAME", help="The policy; without it the file's.")
@click.option("--devices", metavar="N", help="Workers, not the file's: 8, cpu=4,cuda:0=2.")
@click.option("--repeats", type=click.IntRange(3), default=3, show_default=True,
              help="Live runs.")  # fmt: skip
@click.option("--simulations", type=click.IntRange(2), default=8, show_default=True,
              help="Seeds of the prediction, from --seed on.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N")
@click.option("--warm-up", type=DurationType(), default="0s", show_default=True,
              help="Arrivals that are not counted, live and predicted.")  # fmt: skip
@click.option("--until", type=DurationType(), help="Cut the arrivals there, as in 60s.")
@click.option("--world", metavar="PATH|none", help="A calibration, as in simulate.")
@click.option("--history", is_flag=True, help="Show every certificate made so far.")
@json_option
def fidelity(
    file: Path,
    arrivals: Path | None,
    dilate: float,
    devices: str | None,
    warm_up: float,
    until: float | None,
    history: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Certify by live runs how well simulations predict them.

    Simulates the arrivals from a cold start with this machine's calibration (headrace calibrate),
    writes and hashes the prediction, then runs the arrivals live, each time on a temporary local
    broker with every role as a process. Exit code 1: the error of some metric is above its bound,
    its floor and the spread of the live runs. Every certificate is kept, misses too, in
    pipeline.certificates for pipeline.yaml.

    \b
    Example:
      headrace fidelity pipeline.yaml --arrivals trace.txt --policy loki --devices 6
      headrace fidelity cluster.yaml --arrivals trace.txt --dilate 8 --until 60s --json
      headrace fidelity pipeline.yaml --history
    """
    from headrace.fidelity.certificate_text import text
    from headrace.fidelity.fidelity_run import asked, certify
    from headrace.simulation.overrides import parsed

    read = read_deployed(file)
    if history:
        return _show_history(read.path, as_json)
    if arrivals is None:
        raise click.UsageError("give --arrivals, or --history")
    counts = parsed(devices) if devices else None
    wish = asked(
        read, arrivals, devices=counts, dilate=dilate, warm_up_s=warm_up, until_s=until, **options
    )
    say(f"predicted with {wish.world.sentence}")
    found, path = certify(wish)
    print_json(found.as_json()) if as_json else print_text(text(found))
    say(f"kept as {path}")
    return 0 if found.met else UNSUCCESSFUL


def _show_history(path: Path, as_json: bool) -> int:
    from headrace.fidelity.certificate_store import history
    from headrace.fidelity.certificate_text import history_text

    kept = history(path)
    if as_json:
        print_json([
            {"prediction": each.at, "genuine": each.genuine,
             "certificate": each.certificate.as_json() if each.certificate else None}
            for each in kept
        ])  # fmt: skip
    elif kept:
        print_text(history_text(kept))
    else:
        print_text(f"no certificate of {path.name} was made yet; run `headrace fidelity`")
    return 0
