"""``headrace doctor``: check this machine, the broker and a pipeline."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.shared_options import bootstrap_option, json_option
from headrace.terminal import print_json, print_rich

if TYPE_CHECKING:
    from headrace.doctor.findings import Finding

STYLES = {"ok": "green", "warn": "yellow", "wrong": "bold red"}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@bootstrap_option
@json_option
def doctor(file: Path | None, bootstrap: str | None, as_json: bool) -> int:
    """Check this machine, the broker and a pipeline; name the remedies.

    Python, extras, Java, disk, the broker's release and clock; with FILE also the pipeline file,
    its topics and this user's rights on them. Starts nothing. Exit code 0 if nothing is wrong,
    4 without a broker, 2 for an invalid file, else 1.

    \b
    Example:
      headrace doctor pipeline.yaml
      headrace doctor --bootstrap kafka-1:9092 --json
    """
    from headrace.doctor.facts import findings
    from headrace.doctor.findings import as_json as all_as_json
    from headrace.doctor.findings import verdict

    made = []
    for finding in findings(file, bootstrap):
        made.append(finding)
        if not as_json:
            print_rich(_row(finding))
    if as_json:
        print_json(all_as_json(made))
    return verdict(made)


def _row(finding: "Finding") -> Any:
    """Return one finding as a table, printed at once; long findings wrap in their column."""
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1))
    for width in (5, 14, None):
        row.add_column(width=width)
    found = Text(finding.found + (f"\n-> {finding.mend}" if finding.mend else ""))
    row.add_row(Text(finding.state, style=STYLES[finding.state]), finding.what, found)
    return row
