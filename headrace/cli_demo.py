"""``headrace demo``."""

from pathlib import Path

import click

from headrace.cli_options import bootstrap_option, json_option
from headrace.terminal import UNSUCCESSFUL, print_json, print_rich


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@bootstrap_option
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="Load.")
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="Queries/s; half the plan's capacity."
)
@click.option("--seed", default=0, show_default=True, help="Of arrivals and inputs.")
@json_option
def demo(
    file: Path | None,
    bootstrap: str | None,
    seconds: float,
    rate: float | None,
    seed: int,
    as_json: bool,
) -> int:
    """Show a pipeline at work, then report and clean up.

    Without FILE it is the postcode pipeline of the repository. Without --bootstrap it has a broker
    of its own for as long. Half-way it changes the policy by command. Exit code 0 only if no
    query was lost and every process it started is gone.

    \b
    Example:
      headrace demo --seconds 30 --json
    """
    from headrace.demo import show, wished
    from headrace.demo_text import shown

    report = show(wished(file, bootstrap, seconds, rate, seed))
    print_json(report.as_json()) if as_json else print_rich(shown(report))
    return 0 if report.sound else UNSUCCESSFUL
