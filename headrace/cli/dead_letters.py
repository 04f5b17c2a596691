"""``headrace dead-letters``: list, show and replay undecodable records."""

import sys
from pathlib import Path
from typing import BinaryIO

import click

from headrace.broker.connect import reached, reached_running
from headrace.cli.shared_options import bootstrap_option, json_option, pipeline_argument
from headrace.cli.suggesting import Suggesting
from headrace.errors import UNSUCCESSFUL
from headrace.terminal import print_json, print_text, say


@click.group("dead-letters", cls=Suggesting)
def dead_letters() -> None:
    """Show records that could not be decoded, and replay them.

    A dead letter is a record that no codec can read, stored unchanged with the reason.

    \b
    Example:
      headrace dead-letters list pipeline.yaml
    """


@dead_letters.command("list")
@pipeline_argument
@click.option(
    "--last", type=click.IntRange(1), default=20, show_default=True, help="Number of letters."
)
@bootstrap_option
@json_option
def list_letters(file: Path, last: int, bootstrap: str | None, as_json: bool) -> None:
    """List the last dead letters, newest first.

    Columns: name, UTC time, origin, size, reason.

    \b
    Example:
      headrace dead-letters list pipeline.yaml --last 5
    """
    from headrace.client.dead_letter_topic import letter_rows, newest_letters
    from headrace.cluster.running_file import named_pipeline

    pipeline = named_pipeline(file).name
    letters = newest_letters(reached_running(bootstrap), pipeline, last)
    if as_json:
        print_json([each.as_json(with_value=False) for each in letters])
    else:
        print_text("\n".join(letter_rows(letters)) or f"{pipeline} has no dead letters")


@dead_letters.command()
@pipeline_argument
@click.argument("letter")
@click.option("--out", type=click.File("wb"), help="Write the whole value to this file.")
@bootstrap_option
@json_option
def show(
    file: Path, letter: str, out: BinaryIO | None, bootstrap: str | None, as_json: bool
) -> None:
    """Show one dead letter: reason, headers, start of its value.

    \b
    Example:
      headrace dead-letters show pipeline.yaml 0-17 --out letter.bin
    """
    from headrace.client.dead_letter_topic import letter_lines, one_letter
    from headrace.cluster.running_file import named_pipeline

    filed = one_letter(reached_running(bootstrap), named_pipeline(file).name, letter)
    if as_json:
        print_json(filed.as_json(with_value=True))
    else:
        print_text("\n".join(letter_lines(filed)))
    if out is not None:
        out.write(filed.letter.value)
        say(f"{len(filed.letter.value)} bytes written to {out.name}")


@dead_letters.command()
@pipeline_argument
@click.argument("letters", nargs=-1, required=True, metavar="LETTER...")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@bootstrap_option
@json_option
def replay(
    file: Path, letters: tuple[str, ...], yes: bool, bootstrap: str | None, as_json: bool
) -> int:
    """Write dead letters back to the input topic, unchanged.

    Only letters from the input topic can be replayed. The query's deadline counts from the
    replay, unless a header sets it.

    \b
    Example:
      headrace dead-letters replay pipeline.yaml 0-17
    """
    from headrace.client.dead_letter_topic import one_letter, replayable
    from headrace.client.dead_letter_topic import replay as write_back
    from headrace.cluster.running_file import named_pipeline

    if as_json and not yes:
        raise click.UsageError("with --json there is no prompt; add --yes")
    pipeline = named_pipeline(file).name
    kafka = reached(bootstrap)
    found = [one_letter(kafka, pipeline, name) for name in dict.fromkeys(letters)]
    for each in found:
        replayable(each)
    if not yes and not _agreed(len(found), pipeline):
        say("nothing was replayed")
        return UNSUCCESSFUL
    done = write_back(kafka, pipeline, found)
    if as_json:
        print_json([{"letter": d.letter, "topic": d.topic, "query": d.query} for d in done])
        return 0
    for back in done:
        print_text(
            f"letter {back.letter} is on {back.topic} as query {back.query}; "
            f"`headrace explain {file} {back.query}` tells what became of it"
        )
    return 0


def _agreed(count: int, pipeline: str) -> bool:
    letters = "a letter" if count == 1 else f"{count} letters"
    if not sys.stdin.isatty():
        say(f"replaying {letters} to {pipeline} needs confirmation; add --yes")
        return False
    return click.confirm(f"Write {letters} to the input topic of {pipeline}?", err=True)
