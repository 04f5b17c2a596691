"""``headrace session``: streams of queries with objectives and query plans of their own."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.shared_options import (
    DURATION,
    NumberRange,
    bootstrap_option,
    json_option,
    pipeline_argument,
    read_file,
)
from headrace.cli.suggesting import Suggesting
from headrace.errors import UNSUCCESSFUL
from headrace.terminal import print_json, print_text, say

if TYPE_CHECKING:
    from schemas.records import CommandResult


@click.group(cls=Suggesting)
def session() -> None:
    """Manage sessions: streams of queries with their own objectives.

    Queries of a session carry its id in the header headrace-session. Every session has a query
    plan: a setting, a tier and a share of a device for each task.

    \b
    Example:
      headrace session open planned.yaml cam-17 --slo 200ms --plan plan.json
      headrace session list planned.yaml
    """


@session.command("open")
@pipeline_argument
@click.argument("name", metavar="SESSION")
@click.option("--slo", help="Latency objective, as in 60ms. Default: the file's.")
@click.option("--accuracy", type=NumberRange(0, 1), help="Minimum. Default: the file's.")
@click.option("--cost", type=NumberRange(0), help="Most $ per hour. Default: the file's.")
@click.option("--weight", type=NumberRange(0, min_open=True), help="Weight in the goodput.")
@click.option("--samples", help="Samples to profile on: workload@SEED. Default: workload@0.")
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    help="Hand-made plan: JSON with stages [[TASK, TIER], ...], config and shares.",
)
@click.option("--wait", type=DURATION, help="Wait this long until it serves, as in 10s.")
@bootstrap_option
@json_option
def open_(
    file: Path, name: str, wait: float | None, bootstrap: str | None, as_json: bool, **asked: Any
) -> int:
    """Open a session.

    Without --plan the control app searches a plan: profilers run configurations until the policy's
    deadline. With --wait the exit code is 1 if the session does not serve in time, and 3 if no
    plan meets its objectives; the nearest plan is named.

    \b
    Example:
      headrace session open planned.yaml cam-17 --slo 200ms --accuracy 0.9 --wait 30s
      headrace session open planned.yaml cam-18 --plan plan.json
    """
    from headrace.broker.connect import reached
    from headrace.client import session_view as view

    read, kafka = read_file(file), reached(bootstrap)
    result = view.open_session(read, kafka, name, asked)
    if not result.ok or wait is None:
        return _show(result, as_json=as_json)
    found = view.row(view.serving(read, kafka, name, wait), {})
    print_json(found) if as_json else print_text(view.sessions_text([found]))
    return 0


@session.command("list")
@pipeline_argument
@bootstrap_option
@json_option
def list_(file: Path, bootstrap: str | None, as_json: bool) -> None:
    """List the open sessions: state, objectives, attainment, plan, cost.

    \b
    Example:
      headrace session list planned.yaml --json
    """
    from headrace.broker.connect import reached_running
    from headrace.client import session_view as view

    read, kafka = read_file(file), reached_running(bootstrap)
    counts = view.outcomes(read, kafka)
    rows = [view.row(each, counts.get(each.id, {})) for each in view.sessions(read, kafka)]
    print_json(rows) if as_json else print_text(view.sessions_text(rows))


@session.command()
@pipeline_argument
@click.argument("name", metavar="SESSION")
@bootstrap_option
@json_option
def show(file: Path, name: str, bootstrap: str | None, as_json: bool) -> None:
    """Show one session and its candidate plans.

    \b
    Example:
      headrace session show planned.yaml cam-17 --json
    """
    from msgspec.structs import asdict

    from headrace.broker.connect import reached_running
    from headrace.client import session_view as view

    read, kafka = read_file(file), reached_running(bootstrap)
    found = view.session_named(read, kafka, name)
    shown = view.row(found, view.outcomes(read, kafka).get(name, {}))
    if as_json:
        print_json({**shown, "candidates": [asdict(each) for each in found.plans]})
        return
    lines = [*view.details(shown), *view.candidates(found.plans)]
    print_text("\n".join([view.sessions_text([shown]), *lines]))


@session.command()
@pipeline_argument
@click.argument("name", metavar="SESSION")
@bootstrap_option
@json_option
def close(file: Path, name: str, bootstrap: str | None, as_json: bool) -> int:
    """Close a session.

    Ingress stops admitting its queries; those in flight are finished.

    \b
    Example:
      headrace session close planned.yaml cam-17
    """
    from control.controller.session_commands import CLOSE

    return _give(file, bootstrap, as_json, CLOSE, {"session": name})


@session.command()
@pipeline_argument
@click.argument("name", metavar="SESSION")
@bootstrap_option
@json_option
def replan(file: Path, name: str, bootstrap: str | None, as_json: bool) -> int:
    """Search a new plan for a session.

    The session keeps its current plan until the search finds another one.

    \b
    Example:
      headrace session replan planned.yaml cam-17
    """
    from control.controller.session_commands import REPLAN

    return _give(file, bootstrap, as_json, REPLAN, {"session": name})


@session.command()
@pipeline_argument
@click.argument("name", metavar="SESSION")
@click.option("--slo", help="Latency objective, as in 60ms.")
@click.option("--accuracy", type=NumberRange(0, 1), help="Minimum accuracy.")
@click.option("--cost", type=NumberRange(0), help="Most $ per hour.")
@bootstrap_option
@json_option
def slo(file: Path, name: str, bootstrap: str | None, as_json: bool, **asked: Any) -> int:
    """Change the objectives of an open session.

    New deadlines apply at once. A new plan is searched if the current one does not meet the new
    objectives, if a higher accuracy is requested, or if the objectives allow a cheaper plan. The
    session serves meanwhile.

    \b
    Example:
      headrace session slo planned.yaml cam-17 --slo 150ms --accuracy 0.92
    """
    from control.controller.session_commands import SET_SLO

    given = {name: str(value) for name, value in asked.items() if value is not None}
    return _give(file, bootstrap, as_json, SET_SLO, {"session": name, **given})


@session.command()
@pipeline_argument
@click.argument("name", metavar="SESSION")
@click.argument("hop", metavar="TIER>TIER")
@click.option("--rate", help="Rate, as in 0.2Mbps. Default: the file's.")
@click.option("--delay", help="Delay, as in 40ms. Default: the file's.")
@bootstrap_option
def link(
    file: Path, name: str, hop: str, rate: str | None, delay: str | None, bootstrap: str | None
) -> None:
    """Change an emulated link of one session, for experiments.

    Links are emulated if the file has an emulated tier. The workers on this machine apply the
    change at once. Without --rate and --delay the link is the file's again.

    \b
    Example:
      headrace session link planned.yaml cam-17 'handheld>cloud' --rate 0.2Mbps
    """
    from headrace.broker.connect import reached_running
    from headrace.client.session_view import session_named
    from headrace.roles.link_file import change_link

    read = read_file(file)
    named = session_named(read, reached_running(bootstrap), name)
    print_text(change_link(read, named.id, hop, rate, delay))


def _give(
    file: Path, bootstrap: str | None, as_json: bool, action: str, arguments: Mapping[str, str]
) -> int:
    from headrace.broker.connect import reached
    from headrace.client.give_command import give

    return _show(give(read_file(file), reached(bootstrap), action, arguments), as_json=as_json)


def _show(result: "CommandResult", *, as_json: bool) -> int:
    from msgspec.structs import asdict

    if as_json:
        print_json(asdict(result))
    elif result.ok:
        print_text(result.message)
    else:
        say(f"headrace: {result.action} was refused: {result.message}")
    return 0 if result.ok else UNSUCCESSFUL
