"""``headrace session``: streams of queries with objectives and query plans of their own."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.shared_options import (
    DurationType,
    bootstrap_option,
    json_option,
    pipeline_argument,
    read_file,
)
from headrace.errors import UNSUCCESSFUL
from headrace.terminal import print_json, print_text, say

if TYPE_CHECKING:
    from schemas.records import CommandResult


@click.group()
def session() -> None:
    """Open, list, change, close sessions: streams with own objectives.

    The queries of a session bear its id in the header headrace-session. Every session has a query
    plan: a setting, a tier and a share of a device for each task.

    \b
    Example:
      headrace session open planned.yaml cam-17 --slo 200ms --plan plan.json
      headrace session list planned.yaml
    """


@session.command("open")
@pipeline_argument
@click.argument("name", metavar="SESSION")
@click.option("--slo", help="Latency, as in 60ms; instead of the file's.")
@click.option("--accuracy", type=click.FloatRange(0, 1), help="At least; instead of the file's.")
@click.option("--cost", type=click.FloatRange(0), help="$ an hour at most; instead of the file's.")
@click.option("--weight", type=click.FloatRange(0, min_open=True), help="Its part in the goodput.")
@click.option("--samples", help="What it is profiled on: workload@SEED; without it, workload@0.")
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    help="A plan made by hand: JSON with stages [[TASK, TIER], ...], config and shares.",
)
@click.option("--wait", type=DurationType(), help="Return once it serves, as in 10s.")
@bootstrap_option
@json_option
def open_(
    file: Path, name: str, wait: float | None, bootstrap: str | None, as_json: bool, **asked: Any
) -> int:
    """Open a session.

    Without --plan its plan is searched: configurations run on the profilers until the policy's
    deadline. With --wait the exit code is 1 if it does not serve in time, 3 if no plan meets its
    objectives; the nearest is named.

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
    print_json(found) if as_json else print_text(view.text([found]))
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
    print_json(rows) if as_json else print_text(view.text(rows))


@session.command()
@pipeline_argument
@click.argument("name", metavar="SESSION")
@bootstrap_option
@json_option
def show(file: Path, name: str, bootstrap: str | None, as_json: bool) -> None:
    """Show one session, with the plans that it may choose from.

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
    plans = [f"  {each.usd_per_h:.3f} $/h: {dict(each.settings)}" for each in found.plans]
    print_text("\n".join([view.text([shown]), *view.details(shown), *plans]))


@session.command()
@pipeline_argument
@click.argument("name", metavar="SESSION")
@bootstrap_option
@json_option
def close(file: Path, name: str, bootstrap: str | None, as_json: bool) -> int:
    """Close a session.

    No more of its queries are admitted; those in flight are finished.

    \b
    Example:
      headrace session close planned.yaml cam-17
    """
    from headrace.broker.connect import reached
    from headrace.client.session_view import close_session

    result = close_session(read_file(file), reached(bootstrap), name)
    return _show(result, as_json=as_json)


@session.command()
@pipeline_argument
@click.argument("name", metavar="SESSION")
@bootstrap_option
@json_option
def replan(file: Path, name: str, bootstrap: str | None, as_json: bool) -> int:
    """Search the plan of a session again.

    It serves by its present plan until another one is found.

    \b
    Example:
      headrace session replan planned.yaml cam-17
    """
    from headrace.broker.connect import reached
    from headrace.client.session_view import replan_session

    result = replan_session(read_file(file), reached(bootstrap), name)
    return _show(result, as_json=as_json)


@session.command()
@pipeline_argument
@click.argument("name", metavar="SESSION")
@click.option("--slo", help="Latency, as in 60ms.")
@click.option("--accuracy", type=click.FloatRange(0, 1), help="At least.")
@click.option("--cost", type=click.FloatRange(0), help="$ an hour at most.")
@bootstrap_option
@json_option
def slo(file: Path, name: str, bootstrap: str | None, as_json: bool, **asked: Any) -> int:
    """Change the objectives of an open session.

    Deadlines follow at once. Its plan is searched again if it does not meet the new objectives,
    if a higher accuracy is asked, or if they allow a cheaper plan; it serves meanwhile.

    \b
    Example:
      headrace session slo planned.yaml cam-17 --slo 150ms --accuracy 0.92
    """
    from headrace.broker.connect import reached
    from headrace.client.session_view import change_objectives

    result = change_objectives(read_file(file), reached(bootstrap), name, asked)
    return _show(result, as_json=as_json)


@session.command()
@pipeline_argument
@click.argument("name", metavar="SESSION")
@click.argument("hop", metavar="TIER>TIER")
@click.option("--rate", help="As in 0.2Mbps; without it the link is the file's again.")
@click.option("--delay", help="As in 40ms; without it the file's.")
def link(file: Path, name: str, hop: str, rate: str | None, delay: str | None) -> None:
    """Change an emulated link of one session, to see what it does.

    Links are emulated where a tier of the file is. The workers on this machine follow at once.

    \b
    Example:
      headrace session link planned.yaml cam-17 'handheld>cloud' --rate 0.2Mbps
    """
    from headrace.roles.link_file import change_link

    print_text(change_link(read_file(file), name, hop, rate, delay))


def _show(result: "CommandResult", *, as_json: bool) -> int:
    from msgspec.structs import asdict

    if as_json:
        print_json(asdict(result))
    elif result.ok:
        print_text(result.message)
    else:
        say(f"headrace: {result.action} was refused: {result.message}")
    return 0 if result.ok else UNSUCCESSFUL
