"""``headrace explain``: show where one query's time went."""

from pathlib import Path

import click

from headrace.broker.connect import reached
from headrace.cli.shared_options import bootstrap_option, json_option, pipeline_argument, read_file
from headrace.terminal import print_json, print_rich, rich_console

ENDS = ("answered", "late", "dropped", "failed", "refused")


@click.command()
@pipeline_argument
@click.argument("name", metavar="[ID]", required=False)
@bootstrap_option
@click.option("--last", type=click.Choice(ENDS), help="Without an ID: the newest of this outcome.")
@click.option("--all", "every", is_flag=True, help="Show every batch; fold none.")
@json_option
def explain(
    file: Path,
    name: str | None,
    bootstrap: str | None,
    last: str | None,
    every: bool,
    as_json: bool,
) -> None:
    """Show where one query's time went, step by step, and what ended it.

    ID is the query's id, or PARTITION-OFFSET of its record on the input topic; the default is
    the query with the newest answer. Times are in ms since the query was made; slack is the time
    left to the deadline at the end of each step.

    \b
    Example:
      headrace explain pipeline.yaml my-query
      headrace explain pipeline.yaml 2-1234 --json
      headrace explain pipeline.yaml --last late
    """
    from headrace.client.find_answer import find_answer, last_answer
    from headrace.results.waterfall import SHOWN, explained
    from headrace.results.waterfall_text import view

    if name and last:
        raise click.UsageError("--last is for when you have no ID; leave one of them out")
    pipeline, kafka = read_file(file).pipeline, reached(bootstrap)
    answer = find_answer(kafka, pipeline, name) if name else last_answer(kafka, pipeline, last)
    story = explained(answer, 10**6 if every else SHOWN)
    if as_json:
        print_json(story.as_json())
        return
    for line in view(story, pipeline.name, rich_console().width):
        print_rich(line)
