"""Commands to a running pipeline: policies, drains, pauses, and any other by name."""

from collections.abc import Mapping
from pathlib import Path

import click

from headrace.cli.shared_options import (
    Parsed,
    bootstrap_option,
    json_option,
    pipeline_argument,
    read_file,
)
from headrace.cli.suggesting import Suggesting


def _pair(text: str) -> tuple[str, str]:
    key, mark, rest = text.partition("=")
    if not key or not mark:
        raise ValueError(f"{text!r} is no argument; write KEY=VALUE, as in policy=fast")
    return key, rest


PAIR = Parsed("KEY=VALUE", _pair)


def _give(
    file: Path, bootstrap: str | None, as_json: bool, action: str, arguments: Mapping[str, str]
) -> int:
    from headrace.client.give_command import give_command
    from headrace.cluster.running_file import named_pipeline

    named = named_pipeline(file)
    return give_command(named.name, named.file, bootstrap, action, arguments, as_json=as_json)


@click.command()
@pipeline_argument
@click.argument("action")
@click.argument("arguments", nargs=-1, type=PAIR, metavar="[KEY=VALUE]...")
@bootstrap_option
@json_option
def command(
    file: Path,
    action: str,
    arguments: tuple[tuple[str, str], ...],
    bootstrap: str | None,
    as_json: bool,
) -> int:
    """Send any command to the control app and print the result.

    Actions: apply-policy policy=NAME, set-slo slo=250ms, set-demand qps=N, release-demand,
    set-price price=TYPE=USD-PER-HOUR, set-budget budget=USD-PER-HOUR (if devices are rented),
    drain target=WORKER-OR-DEVICE, restore target=..., pause, resume, replan, rollback epoch=N,
    reload variant=all|TASK|TASK/VARIANT.

    \b
    Example:
      headrace command pipeline.yaml set-slo slo=250ms
    """
    given = dict(arguments)
    if len(given) < len(arguments):
        raise click.UsageError("an argument is given twice; give each KEY=VALUE once")
    return _give(file, bootstrap, as_json, action, given)


@click.command()
@pipeline_argument
@bootstrap_option
@json_option
def pause(file: Path, bootstrap: str | None, as_json: bool) -> int:
    """Stop admitting queries; those in flight are finished.

    \b
    Example:
      headrace pause pipeline.yaml
    """
    return _give(file, bootstrap, as_json, "pause", {})


@click.command()
@pipeline_argument
@bootstrap_option
@json_option
def resume(file: Path, bootstrap: str | None, as_json: bool) -> int:
    """Admit queries again after `pause`.

    \b
    Example:
      headrace resume pipeline.yaml
    """
    return _give(file, bootstrap, as_json, "resume", {})


@click.command()
@pipeline_argument
@bootstrap_option
@json_option
def replan(file: Path, bootstrap: str | None, as_json: bool) -> int:
    """Make a new plan now.

    \b
    Example:
      headrace replan pipeline.yaml
    """
    return _give(file, bootstrap, as_json, "replan", {})


@click.command()
@pipeline_argument
@click.argument("target")
@bootstrap_option
@json_option
def drain(file: Path, target: str, bootstrap: str | None, as_json: bool) -> int:
    """Drain a worker, or all workers of a device.

    A drained worker gets no new work and finishes what it has.

    \b
    Example:
      headrace drain pipeline.yaml cpu-2
    """
    return _give(file, bootstrap, as_json, "drain", {"target": target})


@click.command()
@pipeline_argument
@click.argument("target")
@bootstrap_option
@json_option
def restore(file: Path, target: str, bootstrap: str | None, as_json: bool) -> int:
    """Return a drained worker or device to service.

    \b
    Example:
      headrace restore pipeline.yaml cpu-2
    """
    return _give(file, bootstrap, as_json, "restore", {"target": target})


@click.command()
@pipeline_argument
@click.argument("target", default="all", metavar="[TASK|TASK/VARIANT]")
@bootstrap_option
@json_option
def reload(file: Path, target: str, bootstrap: str | None, as_json: bool) -> int:
    """Reload edited operators while the old code keeps serving.

    Workers load the modules beside the pipeline file again and switch to them between two batches.
    If the new code cannot be loaded, the command reports the error and the old code keeps serving.
    Changes of installed packages, combine and the pipeline file need `down` and `up`.

    \b
    Example:
      headrace reload pipeline.yaml read/cnn
    """
    from headrace.client.reload import reload as reloaded

    return reloaded(read_file(file), bootstrap, target, as_json=as_json)


@click.group(cls=Suggesting)
def policy() -> None:
    """Show and change the policy and plans of a running pipeline.

    \b
    Example:
      headrace policy apply pipeline.yaml fast
    """


@policy.command("list")
@pipeline_argument
@bootstrap_option
@json_option
def policy_list(file: Path, bootstrap: str | None, as_json: bool) -> None:
    """List the available policies and mark the one in force.

    \b
    Example:
      headrace policy list pipeline.yaml
    """
    from headrace.client.give_command import list_policies

    list_policies(read_file(file), bootstrap, as_json=as_json)


@policy.command()
@pipeline_argument
@click.argument("name")
@bootstrap_option
@json_option
def apply(file: Path, name: str, bootstrap: str | None, as_json: bool) -> int:
    """Put a policy in force.

    \b
    Example:
      headrace policy apply pipeline.yaml fast
    """
    return _give(file, bootstrap, as_json, "apply-policy", {"policy": name})


@policy.command()
@pipeline_argument
@click.option(
    "--last", type=click.IntRange(1), default=20, show_default=True, help="Number of plans."
)
@bootstrap_option
@json_option
def history(file: Path, last: int, bootstrap: str | None, as_json: bool) -> None:
    """List past plans, newest first.

    \b
    Example:
      headrace policy history pipeline.yaml --last 5
    """
    from headrace.client.give_command import list_plans
    from headrace.cluster.running_file import named_pipeline

    list_plans(named_pipeline(file).name, bootstrap, last, as_json=as_json)


@policy.command()
@pipeline_argument
@click.argument("plan", type=click.IntRange(1))
@bootstrap_option
@json_option
def rollback(file: Path, plan: int, bootstrap: str | None, as_json: bool) -> int:
    """Restore the settings of an earlier plan.

    PLAN is its number; `headrace policy history` lists the plans.

    \b
    Example:
      headrace policy rollback pipeline.yaml 3
    """
    return _give(file, bootstrap, as_json, "rollback", {"epoch": str(plan)})
