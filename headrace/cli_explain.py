"""``headrace explain``."""

from pathlib import Path

import click

from headrace.cli_options import (
    bootstrap_option,
    json_option,
    pipeline_argument,
    reached,
    read_file,
)
from headrace.terminal import print_json, print_rich, rich_console


@click.command()
@pipeline_argument
@click.argument("name", metavar="ID")
@bootstrap_option
@click.option("--all", "every", is_flag=True, help="Show every batch; fold none.")
@json_option
def explain(file: Path, name: str, bootstrap: str | None, every: bool, as_json: bool) -> None:
    """Show where one query's time went, step by step, and who ended it.

    ID is the query's id, or PARTITION-OFFSET of its record on the input topic. Times are in ms
    since the query was made; slack is what is left of its deadline at the end of each step.

    \b
    Example:
      headrace explain pipeline.yaml my-query
      headrace explain pipeline.yaml 2-1234 --json
    """
    from headrace.answers import find_answer
    from headrace.explain import SHOWN, explained
    from headrace.explain_view import view

    pipeline = read_file(file).pipeline
    answer = find_answer(reached(bootstrap), pipeline, name)
    story = explained(answer, 10**6 if every else SHOWN)
    if as_json:
        print_json(story.as_json())
        return
    for line in view(story, pipeline.name, rich_console().width):
        print_rich(line)
