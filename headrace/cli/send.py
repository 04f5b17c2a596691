"""``headrace send`` and ``headrace load``: send queries from the terminal."""

from pathlib import Path
from typing import Any

import click

from headrace.cli.shared_options import (
    DURATION,
    NumberRange,
    bootstrap_option,
    json_option,
    phases_option,
    pipeline_argument,
    read_file,
)
from headrace.errors import UNSUCCESSFUL
from headrace.terminal import print_json, print_text

deadline_option = click.option(
    "--deadline", type=DURATION, help="Time from now, as in 250ms. Default: the SLO."
)
slo_class_option = click.option("--slo-class", default="", help="One of the file's slo_classes.")


@click.command()
@pipeline_argument
@click.argument("input", metavar="INPUT", type=click.File("rb"))
@bootstrap_option
@deadline_option
@slo_class_option
@click.option("--session", default="", help="Session of the query.")
@click.option("--id", "name", default="", help="Id of the query. Default: generated.")
@click.option("--size", type=click.IntRange(1), default=1, help="Query size, if the file has size.")
@json_option
def send(as_json: bool, **asked: Any) -> int:
    """Send a file, or - for stdin, as a query and print its answer.

    If the pipeline file says input: avro or confluent, the file holds the payload as JSON; one
    that is no text, such as an image, is sent as it is.

    Exit code 0 if the query was answered, 1 if not.

    \b
    Example:
      headrace send examples/postcode/pipeline.yaml envelope.png
      echo hello | headrace send pipeline.yaml - --deadline 2s --json
    """
    from headrace.client.ask import answer_json, answer_text, send_one

    answer = send_one(read_file(asked["file"]).pipeline, **asked)
    print_json(answer_json(answer)) if as_json else print_text(answer_text(answer))
    return 0 if answer.outcome == "answered" else UNSUCCESSFUL


@click.command()
@pipeline_argument
@bootstrap_option
@click.option("--rate", type=NumberRange(0, min_open=True), help="Mean queries/s.")
@click.option("--seconds", type=NumberRange(0, min_open=True), help="Length of the load.")
@click.option("--arrivals", type=click.Path(path_type=Path), help="File of arrival times.")
@phases_option
@click.option("--warm-up", type=DURATION, default="0s", show_default=True,
              help="First send 15 queries/s for this time, not counted.")  # fmt: skip
@click.option("--watch", is_flag=True, help="Show the pipeline's status meanwhile.")
@click.option("--input", "payload", type=click.File("rb"), help="Send this file, not the workload.")
@click.option("--seed", default=0, show_default=True, help="Seed of arrivals and inputs.")
@click.option(
    "--sizes",
    type=click.Path(path_type=Path),
    help="CSV of size,probability. Default: the file's, else size 1.",
)
@deadline_option
@slo_class_option
@click.option("--session", default="", help="Session of the queries.")
@click.option("--workload", metavar="MODULE:CLASS", help="Another workload for the inputs.")
@click.option("--labels", is_flag=True, help="Also send the truths as labels.")
@json_option
def load(as_json: bool, **asked: Any) -> int:
    """Send queries at random or given times and report their outcomes.

    Random times follow a Poisson process. Inputs come from the pipeline file's workload, which also
    scores the results. An arrivals file has one time in ms per line, or rows of ms,size below that
    header, or second,qps for every second.

    With --phases the rate is constant or changes linearly in each phase. Outcomes are then reported
    by phase and policy, with the devices and variants in use.

    \b
    Example:
      headrace load examples/postcode/pipeline.yaml --rate 20 --seconds 30
      headrace load pipeline.yaml --phases calm=20s@5,rise=10s@5-60,burst=10s@60 --watch
      headrace load pipeline.yaml --arrivals trace.txt --input sample.png --json
    """
    from headrace.broker.connect import reached
    from headrace.load.load import load_options, loaded
    from headrace.load.load_result import load_row, load_text

    file, options = read_file(asked["file"]), load_options(asked)
    found = loaded(file, reached(asked["bootstrap"]), options)
    print_json(load_row(found)) if as_json else print_text(load_text(found))
    return UNSUCCESSFUL if found.tally.counts["lost"] else 0
