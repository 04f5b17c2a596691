"""``headrace report`` and ``fidelity``: a live run's figures, alone and beside a simulation."""

import time
from pathlib import Path

import click

from headrace.cli.shared_options import (
    DurationType,
    bootstrap_option,
    json_option,
    pipeline_argument,
    read_deployed,
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
@click.option(
    "--arrivals", type=click.Path(path_type=Path), required=True, help="A file of arrival times."
)
@click.option("--dilate", type=click.FloatRange(1), default=1.0, show_default=True,
              help="Let time go so many times slower live; for emulated devices.")  # fmt: skip
@click.option("--policy", metavar="NAME", help="The policy; without it the file's.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N")
@click.option("--warm-up", type=DurationType(), default="10s", show_default=True,
              help="Of the arrivals; tells of the machine and is not counted.")  # fmt: skip
@click.option("--until", type=DurationType(), help="Cut the arrivals there, as in 60s.")
@click.option("--simulations", type=click.IntRange(1), default=3, show_default=True,
              help="So many, with seeds from --seed on; their mean is compared.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Where to store the certificate.")
@json_option
def fidelity(
    file: Path,
    arrivals: Path,
    dilate: float,
    policy: str | None,
    seed: int,
    warm_up: float,
    until: float | None,
    simulations: int,
    out: Path | None,
    as_json: bool,
) -> int:
    """Run arrivals live and simulated, and certify the differences.

    The live run has a temporary local broker and every role as a process; the simulation has the
    same arrivals, seed and policy. The certificate is stored beside the pipeline file, as
    pipeline.fidelity.json for pipeline.yaml.

    \b
    Example:
      headrace fidelity pipeline.yaml --arrivals trace.txt
      headrace fidelity cluster.yaml --arrivals trace.txt --dilate 8 --until 60s --json
    """
    from headrace.fidelity.certificate_text import text
    from headrace.fidelity.fidelity_run import asked, certify, place, store

    read = read_deployed(file)
    wish = asked(
        read, arrivals, policy=policy, seed=seed, dilate=dilate, warm_up_s=warm_up, until_s=until,
        simulations=simulations,
    )  # fmt: skip
    found = certify(wish)
    path = out or place(read.path)
    store(found, path)
    print_json(found.as_json()) if as_json else print_text(text(found))
    say(f"stored as {path}")
    return 0
