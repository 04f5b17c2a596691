"""One command per role, to run a pipeline on several machines."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.broker.connect import brokers
from headrace.cli.shared_options import (
    Parsed,
    bootstrap_option,
    pipeline_argument,
    read_deployed,
)
from headrace.roles.observability.log_options import LogOptions, role_options

if TYPE_CHECKING:
    from headrace.config.topology import Share
    from streams.kafka.kafka_config import KafkaConfig


def _share(text: str) -> "Share":
    from headrace.config.topology import Share

    index, _, of = text.partition("/")
    try:
        return Share(int(index), int(of))
    except ValueError:
        raise ValueError(
            f"{text!r} is no share; write INDEX/OF with INDEX from 0 below OF"
        ) from None


share_option = click.option(
    "--share",
    type=Parsed("INDEX/OF", _share),
    default="0/1",
    show_default=True,
    help="This process is number INDEX (from 0) of OF processes that share the partitions.",
)


def _kafka(bootstrap: str | None) -> "KafkaConfig":
    from headrace.processes import follow_supervisor

    follow_supervisor()
    return brokers(bootstrap)


@click.command()
@pipeline_argument
@bootstrap_option
@share_option
@click.option("--tier", help="Run at the edge, as a device of this per-session tier.")
@click.option("--session", help="Session that owns the device; with --tier.")
@click.option("--input", "source", metavar="HOST:PORT", help="Broker of its input topic.")
@click.option("--site", default=0, help="Number of that broker among those of inputs, from 1.")
@role_options
def ingress(
    file: Path,
    bootstrap: str | None,
    share: "Share",
    tier: str | None,
    session: str | None,
    source: str | None,
    site: int,
    logs: LogOptions,
) -> None:
    """Run ingress: admit or refuse queries.

    With --tier ingress runs at the edge. It runs the first tasks of the session's plan, those on
    that tier, and only their outputs cross the link. With --input the inputs come from a broker at
    the edge.

    \b
    Example:
      headrace ingress pipeline.yaml --bootstrap kafka:9092 --share 0/2
      headrace ingress planned.yaml --bootstrap kafka:9092 --tier handheld --session cam-17 \\
        --input localhost:9092 --site 1
    """
    if tier is None and session is None and source is None and not site:
        from headrace.roles.ingress_role import run_ingress

        whole = read_deployed(file)
        share.check(whole, "cluster.ingress", whole.cluster.ingress)
        run_ingress(whole, _kafka(bootstrap), share, logs)
        return
    from headrace.errors import PipelineError
    from headrace.roles.edge_role import Edge, edge_tier, run_edge_ingress

    if tier is None or session is None:
        raise PipelineError(
            "an ingress at the edge is one session's: give --tier and --session together, as in "
            "--tier handheld --session cam-17"
        )
    there = brokers(source) if source else None
    read, edge = read_deployed(file), Edge(tier=tier, session=session, source=there, site=site)
    edge_tier(read, edge)  # a mistake is told without a broker
    run_edge_ingress(read, _kafka(bootstrap), edge, share, logs)


@click.command()
@pipeline_argument
@bootstrap_option
@click.option("--task", required=True, help="Task whose items it dispatches.")
@share_option
@role_options
def dispatcher(
    file: Path, bootstrap: str | None, task: str, share: "Share", logs: LogOptions
) -> None:
    """Run a dispatcher: hold items of a task until a worker is free.

    \b
    Example:
      headrace dispatcher pipeline.yaml --task read --share 0/2
    """
    from headrace.roles.dispatcher_role import run_dispatcher

    read = read_deployed(file)
    share.check(read, "cluster.dispatchers", read.pipeline.dispatchers)
    run_dispatcher(read, _kafka(bootstrap), task, share, logs)


@click.command()
@pipeline_argument
@bootstrap_option
@share_option
@role_options
def egress(file: Path, bootstrap: str | None, share: "Share", logs: LogOptions) -> None:
    """Run egress: join the branches of each query into its answer.

    \b
    Example:
      headrace egress pipeline.yaml --bootstrap kafka:9092
    """
    from headrace.roles.egress_role import run_egress

    read = read_deployed(file)
    share.check(read, "cluster.egress", read.cluster.egress)
    run_egress(read, _kafka(bootstrap), share, logs)


@click.command()
@pipeline_argument
@bootstrap_option
@click.option("--name", required=True, help="Unique name in plans and reports.")
@click.option("--device", required=True, help="Device: cpu, cuda:0 ... or emulated.")
@click.option(
    "--count",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of workers in this process: emulated ones, or tasks_per_device.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of emulated workers.")
@role_options
def worker(
    file: Path,
    bootstrap: str | None,
    name: str,
    device: str,
    count: int,
    seed: int,
    logs: LogOptions,
) -> None:
    """Run a worker: serve the variants that the plan assigns to it.

    \b
    Example:
      headrace worker pipeline.yaml --name gpu-0 --device cuda:0
    """
    from headrace.roles.workers.worker_role import run_worker

    run_worker(read_deployed(file), _kafka(bootstrap), name, device, count, seed, logs)


@click.command()
@pipeline_argument
@bootstrap_option
@role_options
def control(file: Path, bootstrap: str | None, logs: LogOptions) -> None:
    """Run the control app: read reports and commands, write plans.

    \b
    Example:
      headrace control pipeline.yaml --bootstrap kafka:9092
    """
    from headrace.roles.control_role import run_control

    read = read_deployed(file)
    rentable = None
    if read.cluster.rents:
        from headrace.planning.rentable import rentable_of  # it loads the solvers: 0.4 s

        rentable = rentable_of(read)
    run_control(read, _kafka(bootstrap), logs, rentable)


@click.command()
@pipeline_argument
@bootstrap_option
@role_options
def scorer(file: Path, bootstrap: str | None, logs: LogOptions) -> None:
    """Run the scorer: measure the accuracy of answers by labels.

    One scorer per pipeline is enough. Labels are JSON such as
    {"id": "letter-17", "truth": "75001"} or {"id": "letter-17", "right": 4, "of": 5}.

    \b
    Example:
      headrace scorer pipeline.yaml --bootstrap kafka:9092
    """
    from headrace.roles.scorer_role import run_scorer

    run_scorer(read_deployed(file), _kafka(bootstrap), logs)


@click.command()
@pipeline_argument
@bootstrap_option
@click.option("--name", default="profiler-0", show_default=True, help="Unique name in results.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda:0 ...")
@role_options
def profiler(file: Path, bootstrap: str | None, name: str, device: str, logs: LogOptions) -> None:
    """Run a profiler: run configurations on samples, for searches.

    `headrace search` starts its own profilers. Run more with this command on other machines or
    devices; all profilers share the samples of each configuration.

    \b
    Example:
      headrace profiler planned.yaml --name profiler-1 --device cuda:0
    """
    from headrace.roles.profiling.profiler_role import run_profiler

    run_profiler(read_deployed(file), _kafka(bootstrap), name, device, logs)
