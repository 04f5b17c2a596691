"""The dashboard: running pipelines on a page."""

from pathlib import Path

import click

from headrace.broker.connect import reached_running
from headrace.cli.shared_options import bootstrap_option, host_option, pipelines_argument, read_file
from headrace.terminal import print_text


@click.command()
@pipelines_argument
@bootstrap_option
@host_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port of the page; 0: any free port.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File with the access token. Default: a random token, which is printed.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Further host name of the page; repeatable.",
)
def dashboard(
    files: tuple[Path, ...],
    bootstrap: str | None,
    host: str,
    port: int,
    token_file: Path | None,
    names: tuple[str, ...],
) -> None:
    """Serve a live web page of running pipelines.

    The page shows rates, latencies, the plan and its changes, queues, devices, and where late
    queries spent their time. The dashboard is read-only and can be stopped at any time.

    \b
    Example:
      headrace dashboard pipeline.yaml
      headrace dashboard one.yaml two.yaml --port 0
    """
    from headrace.dashboard.dashboard_role import DashboardOptions, run_dashboard
    from headrace.processes import follow_supervisor

    options = DashboardOptions(host=host, port=port, token_file=token_file, names=names)
    read = [read_file(file) for file in files]
    follow_supervisor()
    run_dashboard(read, reached_running(bootstrap), options, print_text)
