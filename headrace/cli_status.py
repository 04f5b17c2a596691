"""``headrace status``."""

from pathlib import Path

import click

from headrace.cli_options import (
    bootstrap_option,
    json_option,
    pipeline_argument,
    reached,
    read_file,
)


@click.command()
@pipeline_argument
@bootstrap_option
@click.option("--once", is_flag=True, help="Print one table and end.")
@json_option
def status(file: Path, bootstrap: str | None, once: bool, as_json: bool) -> None:
    """Show what a running pipeline does, every second until Ctrl-C.

    Per task and variant: workers, open slots, records waiting on the broker (lag), items in the
    workers' queues, items per second in, done, dropped and failed, batch size, time busy.

    \b
    Example:
      headrace status pipeline.yaml --once --json
    """
    from headrace.watching import show_status

    show_status(read_file(file), reached(bootstrap), once=once, as_json=as_json)
