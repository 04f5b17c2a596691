"""``headrace doctor``."""

from pathlib import Path

import click

from headrace.cli_options import bootstrap_option, json_option
from headrace.terminal import print_json, print_rich

STYLES = {"ok": "green", "warn": "yellow", "wrong": "bold red"}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@bootstrap_option
@json_option
def doctor(file: Path | None, bootstrap: str | None, as_json: bool) -> int:
    """Check this machine, the broker and a pipeline, and say what to mend.

    Python, extras, Java, disk, the broker's release and clock; with FILE also the pipeline file,
    its topics and what this user may do with them. Starts nothing. Exit code 0 if nothing is
    wrong, 4 without a broker, 2 for a wrong file, else 1.

    \b
    Example:
      headrace doctor pipeline.yaml
      headrace doctor --bootstrap kafka-1:9092 --json
    """
    from rich.text import Text

    from headrace.doctor import as_json as all_as_json
    from headrace.doctor import verdict
    from headrace.doctor_facts import findings

    made = []
    for finding in findings(file, bootstrap):
        made.append(finding)
        if not as_json:
            text = Text("\n".join(finding.lines()))
            text.stylize(STYLES[finding.state], 0, len(finding.state))
            print_rich(text)
    if as_json:
        print_json(all_as_json(made))
    return verdict(made)
