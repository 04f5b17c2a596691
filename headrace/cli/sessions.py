"""``headrace search`` and ``schedule``: query plans for one session and for many."""

import os
from pathlib import Path

import click

from headrace.cli.shared_options import DurationType, json_option, pipeline_argument, read_file
from headrace.errors import INFEASIBLE
from headrace.terminal import print_json, print_text


@click.command()
@pipeline_argument
@click.option(
    "--recorded",
    type=click.Path(path_type=Path),
    required=True,
    help="Profiles of every configuration, to search over without running any.",
)
@click.option("--accuracy", type=click.FloatRange(0, 1), help="At least; instead of the file's.")
@click.option("--slo", type=DurationType(), help="Latency, as in 60ms; instead of the file's.")
@click.option("--cost", type=click.FloatRange(0), help="$ an hour at most.")
@click.option("--deadline", type=DurationType(), help="End after so long; instead of the policy's.")
@click.option("--spend", type=click.FloatRange(0), help="$ of profiling at most; 0: any.")
@click.option("--steps", type=click.IntRange(1), help="Profiled configurations at most.")
@click.option("--session", default="cli", show_default=True, help="Name of the session.")
@json_option
def search(
    file: Path, recorded: Path, accuracy: float | None, slo: float | None, cost: float | None,
    deadline: float | None, spend: float | None, steps: int | None, session: str, as_json: bool,
) -> int:  # fmt: skip
    """Search a query plan for one session: knobs, tiers and shares.

    Exit code 3: no plan within the SLO was found; the nearest is shown.

    \b
    Example:
      headrace search examples/postcode/planned.yaml --recorded truth.json --accuracy 0.9
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported
    from headrace.planning.recorded_truth import read_truth
    from headrace.planning.search_report import as_json as line
    from headrace.planning.search_report import as_text
    from headrace.planning.session_search import Asked, search_recorded, session_space

    read = read_file(file)
    truth = read_truth(recorded, session_space(read).space)
    asked = Asked(
        session=session, accuracy=accuracy, latency_s=slo, usd_per_h=cost,
        deadline_s=deadline, spend_usd=spend, steps=steps,
    )  # fmt: skip
    found = search_recorded(read, truth, asked)
    print_json(line(found)) if as_json else print_text(as_text(found))
    return 0 if found.search.plans else INFEASIBLE


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
