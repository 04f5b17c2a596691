"""``headrace broker``: a local Apache Kafka; ``headrace acls``: the least ACLs of each role."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.broker.connect import local_broker
from headrace.cli.shared_options import json_option, pipeline_argument, read_file
from headrace.errors import NO_BROKER
from headrace.terminal import print_json, print_text

if TYPE_CHECKING:
    from headrace.broker.local_broker import Running


@click.group()
def broker() -> None:
    """Run a local Apache Kafka: one node or three, on loopback.

    Its data lies in HEADRACE_HOME or the per-user data directory.

    \b
    Example:
      headrace broker start
    """


@broker.command()
@click.option(
    "--nodes",
    type=click.Choice(["1", "3"]),
    help="Brokers of a new home: 3 keep three copies of every record, for tests with faults.",
)
@json_option
def start(as_json: bool, nodes: str | None) -> None:
    """Start the local broker, or find it.

    Nodes that have died are started again.

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
    """Stop the local broker; its data stays.

    \b
    Example:
      headrace broker stop
    """
    from headrace.broker.local_broker import stop as stop_broker

    stopped = stop_broker()
    text = "the local broker has stopped" if stopped else "no local broker was running"
    print_json({"stopped": stopped}) if as_json else print_text(text)


@broker.command()
@click.option("--address", is_flag=True, help="Print host:port alone, for scripts.")
@json_option
def status(as_json: bool, address: bool) -> int:
    """Show whether the local broker runs (exit code 4 if not).

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
    text = _line(running) if running else "no local broker runs; `headrace broker start` starts it"
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
    help="Users are called PREFIX and the role; without it <pipeline>- and the role.",
)
@json_option
def acls(file: Path, prefix: str | None, as_json: bool) -> None:
    """Print the least ACLs of each role, as lines for kafka-acls.

    Roles: ingress, worker, egress and control are processes; producer and consumer are your
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
