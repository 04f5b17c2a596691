"""``headrace logs``: the logs of a pipeline's roles on this machine."""

import re
from collections import deque
from pathlib import Path
from typing import Any

import click

from headrace.cli.shared_options import pipeline_argument, read_file
from headrace.errors import Unsuccessful
from headrace.terminal import print_text

LEVELS = ("debug", "info", "warning", "error")
FOLLOW_S = 0.3


class _Pattern(click.ParamType):
    """A regular expression."""

    name = "REGEX"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        try:
            re.compile(str(value))
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param)
        return str(value)


@click.command()
@pipeline_argument
@click.option("--role", "roles", multiple=True, metavar="NAME", help="Of this role only, as cpu-0.")
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="From this level on.")
@click.option("--grep", "pattern", type=_Pattern(), default="", help="Lines that match it only.")
@click.option("--last", type=click.IntRange(0), default=100, show_default=True, help="So many.")
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
def logs(file: Path, follow: bool, last: int, **asked: Any) -> None:
    """Show the logs of all roles merged by time, the last run's included.

    \b
    Example:
      headrace logs pipeline.yaml --level warning
      headrace logs pipeline.yaml --role cpu-0 --follow --grep "loaded|failed"
    """
    import time

    from headrace.cluster.log_files import Filter, Follower, LogEntry, entries, role_logs
    from headrace.processes import run_directory

    directory = run_directory(read_file(file).pipeline.name)
    known = role_logs(directory)
    if not known:
        raise Unsuccessful(
            f"there are no logs in {directory}; `headrace up FILE` on this machine writes them"
        )
    unknown = [name for name in asked["roles"] if name not in known]
    if unknown:
        raise click.UsageError(f"no role {unknown[0]!r} has a log; there are {', '.join(known)}")
    wanted = Filter(tuple(asked["roles"]), asked["level"], asked["pattern"])
    width = max(map(len, known))

    def show(entry: LogEntry) -> None:
        print_text(f"{entry.role:<{width}} | {entry.text}")

    following = Follower(directory)
    for entry in deque(entries(directory, wanted), maxlen=last):
        show(entry)
    while follow:
        time.sleep(FOLLOW_S)
        for entry in following.take(wanted):
            show(entry)
