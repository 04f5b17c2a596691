"""``headrace broker``: a local Apache Kafka; ``headrace acls``: the least ACLs of each role."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.broker.connect import local_broker
from headrace.cli.shared_options import json_option, pipeline_argument, read_file
from headrace.cli.suggesting import Suggesting
from headrace.errors import NO_BROKER
from headrace.terminal import print_json, print_text, say

if TYPE_CHECKING:
    from headrace.broker.local_broker import Running


@click.group(cls=Suggesting)
def broker() -> None:
    """Run a local Apache Kafka of one or three nodes on loopback.

    Data is stored in HEADRACE_HOME or the per-user data directory.

    \b
    Example:
      headrace broker start
    """


@broker.command()
@click.option(
    "--nodes",
    type=click.Choice(["1", "3"]),
    help="Number of brokers in a new home; with 3, records have three replicas, for fault tests.",
)
@json_option
def start(as_json: bool, nodes: str | None) -> None:
    """Start the local broker if it is not running.

    Nodes that have died are restarted.

    \b
    Example:
      headrace broker start --json
      HEADRACE_HOME=/tmp/three headrace broker start --nodes 3
    """
    running = local_broker(int(nodes) if nodes else None)
    print_json(_row(running)) if as_json else print_text(_line(running))


@broker.command()
@json_option
def stop(as_json: bool) -> None:
    """Stop the local broker and keep its data.

    \b
    Example:
      headrace broker stop
    """
    from headrace.broker.local_broker import status as running_broker
    from headrace.broker.local_broker import stop as stop_broker
    from headrace.cluster.run_state import runs_on
    from headrace.processes import run_directory

    running = running_broker()
    waiting = runs_on(running.bootstrap, run_directory("any").parent) if running else []
    stopped = stop_broker()
    text = "the local broker has stopped" if stopped else "no local broker was running"
    print_json({"stopped": stopped}) if as_json else print_text(text)
    if stopped and waiting:
        say(
            f"still up and waiting for it: {', '.join(waiting)}; `headrace broker start` brings it "
            "back, `headrace down FILE` ends a pipeline"
        )


@broker.command()
@click.option("--address", is_flag=True, help="Print only host:port, for scripts.")
@json_option
def status(as_json: bool, address: bool) -> int:
    """Show whether the local broker is running (exit code 4 if not).

    \b
    Example:
      headrace broker status
      export HEADRACE_BOOTSTRAP=$(headrace broker status --address)
    """
    from headrace.broker.local_broker import status as broker_status

    running = broker_status()
    if address and running:
        print_text(running.bootstrap)
        return 0
    text = (
        _line(running)
        if running
        else "no local broker is running; start it with `headrace broker start`"
    )
    print_json(_row(running)) if as_json else print_text(text)
    return 0 if running else NO_BROKER


def _line(running: "Running") -> str:
    if len(running.nodes) < 2:
        return f"broker at {running.bootstrap} (process {running.pid}, log {running.log})"
    nodes = ", ".join(
        f"node {number}: " + (f"process {pid}" if pid else "not running")
        for number, pid in enumerate(running.nodes, 1)
    )
    return f"broker at {running.bootstrap} ({nodes}; log {running.log})"


def _row(running: "Running | None") -> dict[str, Any]:
    if running is None:
        return {"running": False}
    return {
        "running": True,
        "bootstrap": running.bootstrap,
        "pid": running.pid,
        "home": str(running.home),
        "log": str(running.log),
        "started_here": running.started_here,
        "nodes": list(running.nodes),
    }


@click.command()
@pipeline_argument
@click.option(
    "--principal-prefix",
    "prefix",
    metavar="PREFIX",
    help="User names are PREFIX and the role. Default: <pipeline>-.",
)
@json_option
def acls(file: Path, prefix: str | None, as_json: bool) -> None:
    """Print the minimal ACLs of each role, as kafka-acls commands.

    Ingress, worker, egress and control are processes of Headrace; producer and consumer are client
    programs; operator is the person who runs `up`, `status` and commands; purger may delete the
    pipeline's topics.

    \b
    Example:
      headrace acls examples/postcode/pipeline.yaml --principal-prefix ml-
    """
    from headrace.cluster.acl_lines import acl_lines, acl_rows, principals

    pipeline = read_file(file).pipeline
    named = principals(pipeline, prefix)
    if as_json:
        print_json(acl_rows(pipeline, named))
    else:
        print_text("\n".join(acl_lines(pipeline, named)))
