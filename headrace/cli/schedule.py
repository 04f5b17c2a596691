"""``headrace schedule``: choose plans for sessions on shared GPUs."""

import os
from pathlib import Path

import click

from headrace.cli.shared_options import json_option
from headrace.errors import INFEASIBLE
from headrace.terminal import print_json, print_text


@click.command()
@click.option(
    "--instance",
    type=click.Path(path_type=Path),
    required=True,
    help="Tiers, and queries with their plans, as JSON.",
)
@click.option(
    "--objective",
    type=click.Choice(["goodput", "cost"]),
    default="goodput",
    show_default=True,
    help="Serve the most weight that fits, or everything for the least $ an hour.",
)
@click.option(
    "--gpus",
    type=click.Choice(["given", "any"]),
    default="given",
    show_default=True,
    help="The instance's numbers of GPUs, or as many as needed.",
)
@click.option(
    "--policy",
    default="compass",
    show_default=True,
    metavar="NAME",
    help="compass, compass-paper (greedy), compass-ilp (small instances), first-come.",
)
@json_option
def schedule(instance: Path, objective: str, gpus: str, policy: str, as_json: bool) -> int:
    """Choose a plan for each of many sessions, on tiers of shared GPUs.

    Nothing is started. Exit code 3: with --objective cost, some session cannot be served.

    \b
    Example:
      headrace schedule --instance instance.json --objective goodput --json
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported
    from headrace.planning.instance_file import as_json as line
    from headrace.planning.instance_file import as_text, read_instance, solve

    read = read_instance(instance, gpus)
    made = solve(read, objective, policy)
    if as_json:
        print_json(line(read, made))
    else:
        print_text(as_text(read, made))
    return 0 if made.feasible else INFEASIBLE
