"""``headrace status``: show the state of running pipelines."""

from pathlib import Path

import click

from headrace.broker.connect import reached
from headrace.cli.shared_options import bootstrap_option, json_option, read_file


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@bootstrap_option
@click.option("--once", is_flag=True, help="Print one table and end.")
@json_option
def status(file: Path | None, bootstrap: str | None, once: bool, as_json: bool) -> None:
    """Show the state of running pipelines, every second until Ctrl-C.

    Without FILE: every pipeline on the broker in a row, and the variants on each device. With
    FILE: one pipeline, per task and variant: workers, open slots, records waiting on the broker
    (lag), items in the workers' queues, items per second in, done, dropped and failed, batch
    size, time busy.

    \b
    Example:
      headrace status pipeline.yaml --once --json
    """
    from headrace.status.watch import show_all, show_status

    if file is None:
        show_all(reached(bootstrap), once=once, as_json=as_json)
    else:
        show_status(read_file(file), reached(bootstrap), once=once, as_json=as_json)
