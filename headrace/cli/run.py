"""``headrace validate``, ``up`` and ``down``."""

from pathlib import Path

import click

from headrace.cli.shared_options import (
    bootstrap_option,
    json_option,
    pipeline_argument,
    read_deployed,
    read_file,
)
from headrace.errors import INFEASIBLE
from headrace.roles.log_options import log_options, metrics_option
from headrace.terminal import print_json, print_text


@click.command()
@pipeline_argument
@json_option
def validate(file: Path, as_json: bool) -> int:
    """Check a pipeline file, and that all it names can be loaded here.

    Exit code 2: an error in the file; 3: a policy needs more workers than the cluster has.

    \b
    Example:
      headrace validate examples/postcode/pipeline.yaml
    """
    from headrace.config.validation import described
    from headrace.planning.mix_validation import examined_with_mix

    found = examined_with_mix(read_file(file))
    print_json(found.as_json()) if as_json else print_text(described(found))
    return INFEASIBLE if found.infeasible else 0


@click.command()
@pipeline_argument
@bootstrap_option
@json_option
@click.option("--detach", is_flag=True, help="Return once it is up; `headrace down FILE` ends it.")
@log_options
@metrics_option("First of the ports that serve the roles' metrics; 0: any free ones.")
def up(
    file: Path,
    bootstrap: str | None,
    as_json: bool,
    detach: bool,
    metrics_port: int | None,
) -> int:
    """Run a whole pipeline on this machine.

    Control app, ingress, workers and egress, each a process with its own log. Ends with Ctrl-C or
    `headrace down`; a role that dies is restarted.

    \b
    Example:
      headrace up examples/postcode/pipeline.yaml --detach
    """
    from headrace.cluster.up import up_attached, up_detached, with_metrics

    start = up_detached if detach else up_attached
    return start(with_metrics(read_deployed(file), metrics_port), bootstrap, as_json=as_json)


@click.command()
@pipeline_argument
@bootstrap_option
@click.option("--purge", is_flag=True, help="Also delete all that the broker holds of it.")
@json_option
def down(file: Path, bootstrap: str | None, purge: bool, as_json: bool) -> None:
    """End the pipeline that `headrace up` runs on this machine.

    Queries in flight are finished first. The broker keeps running, unless `up` started it. With
    --purge the pipeline's topics, offsets and plans are deleted; the local broker is started for
    that if necessary.

    \b
    Example:
      headrace down examples/postcode/pipeline.yaml
    """
    from headrace.cluster.up import down_from_here

    ended, purged, text = down_from_here(read_file(file), bootstrap, purge=purge)
    row = {"was_up": ended} | ({"purged": purged.as_json()} if purged else {})
    print_json(row) if as_json else print_text(text)
