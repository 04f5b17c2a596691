"""``headrace demo``: run a pipeline, a scripted load and a report."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from headrace.cli.shared_options import NumberRange, bootstrap_option, json_option
from headrace.errors import UNSUCCESSFUL
from headrace.terminal import print_json, print_text, say

if TYPE_CHECKING:
    from headrace.config.pipeline_file import PipelineFile
    from headrace.demo.demo_run import DemoOptions


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@bootstrap_option
@click.option("--seconds", type=NumberRange(1), default=80.0, show_default=True,
              help="Length of the load.")  # fmt: skip
@click.option(
    "--rate",
    type=NumberRange(0, min_open=True),
    help="Peak queries/s. Default: from the profile.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of arrivals and inputs.")
@click.option("--compare", is_flag=True, help="Also run the load under each fixed plan: minutes.")
@click.option("--sessions", is_flag=True, help="Run six sessions with changes of data and links.")
@json_option
def demo(
    file: Path | None,
    bootstrap: str | None,
    seconds: float,
    rate: float | None,
    seed: int,
    compare: bool,
    sessions: bool,
    as_json: bool,
) -> int:
    """Run a pipeline under a scripted load, then report and clean up.

    The demo runs up, load, policy apply, status, report and down, and prints each command first.
    FILE defaults to the postcode pipeline of the repository. Without --bootstrap the demo starts a
    temporary broker.

    The load rises above the capacity of the most accurate variants and falls again. Meanwhile a
    command switches from a fixed plan to a policy that scales. A pipeline without such a policy
    gets a steady load, and a command changes the plan half-way. The exit code is 0 only if no
    query was lost and every started process has ended.

    With --sessions the demo opens six sessions on the postcode pipeline with knobs and tiers, on a
    temporary broker. After the search of their plans two sessions change their data, and one
    changes its link.

    \b
    Example:
      headrace demo
      headrace demo --sessions
      headrace demo --seconds 30 --json
      headrace demo --compare
    """
    from headrace.config.pipeline_file import read_pipeline_file
    from headrace.demo.demo_run import DemoOptions, shipped_pipeline

    if sessions:
        _refuse_unused(("bootstrap", "rate", "seed", "compare"))
        path = file or shipped_pipeline().with_name("sessions.yaml")
        return _with_sessions(read_pipeline_file(path), seconds, as_json)
    options = DemoOptions(
        file=read_pipeline_file(file or shipped_pipeline()), bootstrap=bootstrap, seconds=seconds,
        rate_qps=rate, seed=seed, as_json=as_json,
    )  # fmt: skip
    return _compared(options) if compare else _shown(options)


def _refuse_unused(names: tuple[str, ...]) -> None:
    """Raise ``click.UsageError`` for one of these options on the command line."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} has no effect with --sessions; leave it out")


def _with_sessions(file: "PipelineFile", seconds: float, as_json: bool) -> int:
    from headrace.demo.session_demo import run_session_demo

    result = run_session_demo(file, seconds, say if as_json else print_text)
    if as_json:
        print_json(result)
    return UNSUCCESSFUL if result["lost"] else 0


def _compared(options: "DemoOptions") -> int:
    from headrace.demo.demo_results import comparison_json, demo_comparison_text
    from headrace.demo.demo_run import left_text, run_comparison

    runs, left = run_comparison(options)
    if options.as_json:
        print_json(comparison_json(runs, left))
    else:
        print_text(demo_comparison_text(runs))
    options.show(left_text(left))
    return UNSUCCESSFUL if left or any(each.lost for _, each in runs) else 0


def _shown(options: "DemoOptions") -> int:
    from headrace.demo.demo_run import left_text, run_demo

    found, left = run_demo(options)
    if options.as_json:
        print_json(found.as_json(left))
    options.show(left_text(left))
    return UNSUCCESSFUL if found.lost or left else 0
