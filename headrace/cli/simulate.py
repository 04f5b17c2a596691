"""``headrace simulate`` and ``compare``: the pipeline in virtual time."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.shared_options import (
    DURATION,
    F,
    NumberRange,
    RepeatedOptions,
    bootstrap_option,
    json_option,
    one_blas_thread,
    phases_option,
    pipeline_argument,
    read_deployed,
    read_file,
)
from headrace.terminal import print_json, print_text, say

if TYPE_CHECKING:
    from headrace.config.pipeline_file import PipelineFile
    from headrace.simulation.batch_runs import SimulationRequest
    from headrace.simulation.sweep import Sweep


WORLD_OPTION = click.option(
    "--world", metavar="PATH|none",
    help="Calibration, or none: built-in figures. Default: the one beside the file, if it fits "
    "this machine.",
)  # fmt: skip

# The options of every command that simulates.
RUN_OPTIONS = (
    click.option("--arrivals", type=click.Path(path_type=Path), help="File of arrival times."),
    phases_option,
    click.option("--from-topic", metavar="TOPIC", help="Arrivals recorded in an input topic."),
    click.option(
        "--rate", multiple=True, type=NumberRange(0, min_open=True), metavar="N",
        help="Mean queries/s.",
    ),
    click.option("--seconds", type=NumberRange(0, min_open=True), help="Length of the load."),
    click.option(
        "--cv", type=NumberRange(0, min_open=True), default=1.0, show_default=True,
        help="With --rate: coefficient of variation of the gaps; 1: a Poisson process.",
    ),
    click.option(
        "--burst", type=NumberRange(1),
        help="With --rate: factor on the rate in bursts of 2 s, 20 s apart on average.",
    ),
    click.option(
        "--policy", multiple=True, metavar="NAME", help="Policies. Default: the file's."
    ),
    click.option(
        "--seed", multiple=True, type=click.IntRange(0), metavar="N", help="Seeds. Default: 0."
    ),
    click.option(
        "--faults", type=click.Path(path_type=Path), help="YAML of faults and their times."
    ),
    click.option(
        "--random-faults", type=click.IntRange(0), default=0, help="Number of random faults."
    ),
    click.option("--warm-up", type=DURATION, help="Initial time, not counted, as in 10s."),
    click.option(
        "--latency", type=click.Choice(["mean", "p50", "p90", "p95", "p99"]), default=None,
        help="Every batch takes this quantile of the profile. Default: random draws.",
    ),
    click.option("--solve-time", type=DURATION, help="Virtual time that a solve takes."),
    click.option(
        "--devices", multiple=True, metavar="N",
        help="Workers, as in 8 or cpu=4,cuda:0=2. Default: the file's.",
    ),
    click.option(
        "--slo", multiple=True, type=DURATION, help="SLO, as in 250ms. Default: the file's."
    ),
    click.option(
        "--share", type=NumberRange(0, 1, min_open=True),
        help="Share of the devices' time. Default: cluster.share.",
    ),
    click.option(
        "--classes", metavar="CLASS=PART,...", help="Share of queries in each SLO class."
    ),
    WORLD_OPTION,
)  # fmt: skip


def run_options(function: F) -> F:
    """Add ``RUN_OPTIONS`` to a command, in order."""
    for option in reversed(RUN_OPTIONS):
        function = option(function)
    return function


def simulation_request(
    file: "PipelineFile", options: Mapping[str, Any]
) -> tuple["SimulationRequest", "Sweep", str]:
    """Return the request and the sweep that the values of ``RUN_OPTIONS`` make, and a sentence on
    the world.

    Raises ``CalibrationError``.
    """
    from headrace.fidelity.certificate_store import known_drift
    from headrace.simulation.batch_runs import SimulationRequest
    from headrace.simulation.overrides import parsed_classes, parsed_devices
    from headrace.simulation.sweep import Sweep
    from headrace.simulation.world_file import chosen_world

    found = chosen_world(file, options["world"])
    if options["phases"] is not None and options["arrivals"] is not None:
        raise click.UsageError("--phases has its own rates and length; leave --arrivals out")
    request = SimulationRequest(
        policies=options["policy"], seeds=options["seed"],
        arrivals=options["phases"] or options["arrivals"], from_topic=options["from_topic"],
        bootstrap=options["bootstrap"], seconds=options["seconds"], cv=options["cv"],
        burst=options["burst"], faults=options["faults"], random_faults=options["random_faults"],
        warm_up_s=options["warm_up"], latency=options["latency"], solve_s=options["solve_time"],
        world=found.world, share=options["share"],
        classes=parsed_classes(options["classes"]) if options["classes"] else (),
    )  # fmt: skip
    sweep = Sweep(
        rates_qps=options["rate"], devices=[parsed_devices(text) for text in options["devices"]],
        slos_s=options["slo"],
    )  # fmt: skip
    drift = known_drift(file.path, found.sha256)
    return request, sweep, f"simulated with {found.sentence}{drift}"


def _say_world(world: str, request: "SimulationRequest", sweep: "Sweep") -> None:
    """Say which world was simulated, and which loads are beyond its calibrated rates."""
    from headrace.simulation.sweep import points
    from headrace.simulation.world_file import beyond_of

    outside = beyond_of(request.world, (each.workload() for _, each in points(request, sweep)))
    say("; ".join(filter(None, (world, outside))))


@click.command(cls=RepeatedOptions)
@pipeline_argument
@run_options
@click.option("--trace-out", type=click.Path(path_type=Path), help="Write a Chrome trace.")
@click.option(
    "--queries-out",
    type=click.Path(path_type=Path),
    help="Write a row per query: .csv, .jsonl or .parquet.",
)
@click.option(
    "--seconds-out",
    type=click.Path(path_type=Path),
    help="Write a row per second: .csv, .jsonl or .parquet.",
)
@click.option(
    "--sessions",
    type=click.Path(path_type=Path),
    help="YAML of sessions over time, instead of arrivals; needs --recorded and --seconds.",
)
@click.option(
    "--recorded",
    type=click.Path(path_type=Path),
    help="With --sessions: profiles of every configuration, for the simulated profilers.",
)
@bootstrap_option
@json_option
def simulate(
    file: Path, as_json: bool, trace_out: Path | None, sessions: Path | None,
    recorded: Path | None, **asked: Any,
) -> int:  # fmt: skip
    """Simulate a pipeline under given arrivals, in virtual time.

    The simulation runs the nodes, policies and controller of the live system. Devices, hops and
    solves take their measured times, those of this machine if it was calibrated (headrace
    calibrate). An arrivals file has one time in ms per line, or second,qps for every second.

    All policies get the same arrivals. Every policy runs with every seed, on all cores, and with
    every combination of several --rate, --devices and --slo.

    \b
    Example:
      headrace simulate pipeline.yaml --arrivals trace.txt --policy static loki --seed 1 2 3
      headrace simulate pipeline.yaml --rate 200 --seconds 60 --burst 5 --json
      headrace simulate pipeline.yaml --rate 50 100 200 --seconds 60 --devices 4 8 --slo 100ms 250ms
      headrace simulate planned.yaml --sessions sessions.yaml --recorded truth.json --seconds 600
    """
    one_blas_thread()
    if sessions is not None or recorded is not None:
        asked["trace_out"] = trace_out
        return _simulate_sessions(file, sessions, recorded, asked, as_json=as_json)
    from headrace.atomic_file import writable
    from headrace.simulation.batch_runs import played_rows, rows_text
    from headrace.simulation.run_details import exported
    from headrace.simulation.sweep import labelled, swept

    outs = [asked.pop(name) for name in ("queries_out", "seconds_out")]
    if trace_out is not None and any(outs):
        raise click.UsageError("--trace-out excludes --queries-out and --seconds-out; run it twice")
    if trace_out is not None:
        writable(trace_out, "--trace-out")
    deployed = read_deployed(file)
    request, sweep, world = simulation_request(deployed, asked)
    labels, wanted = swept(deployed, request, sweep)
    played = exported(wanted, labels, *outs) if any(outs) else played_rows(wanted, trace_out)
    _say_world(world, request, sweep)  # after the errors of request and runs
    found = labelled(labels, played)
    print_json(found) if as_json else print_text(rows_text(found))
    return 0


def _simulate_sessions(
    file: Path, sessions: Path | None, recorded: Path | None, asked: Mapping[str, Any], *,
    as_json: bool,
) -> int:  # fmt: skip
    """Play sessions that come and go; of the other options only --seconds and --seed count."""
    if sessions is None or recorded is None or not asked["seconds"]:
        raise click.UsageError("give --sessions, --recorded and --seconds together")
    taken = {"seconds", "seed", "bootstrap"}
    given = {**asked, "cv": asked["cv"] != 1.0}
    others = sorted(name for name, value in given.items() if value and name not in taken)
    if others or len(asked["seed"]) > 1:
        named = others[0].replace("_", "-") if others else "seed"
        raise click.UsageError(
            f"--{named} is not for --sessions: give --recorded, --seconds and one --seed only"
        )
    from headrace.simulation.sessions.session_results import as_row, as_text
    from headrace.simulation.sessions.session_run import played_sessions

    seed = asked["seed"][0] if asked["seed"] else 0
    found = played_sessions(read_file(file), sessions, recorded, asked["seconds"], seed)
    print_json(as_row(found)) if as_json else print_text(as_text(found))
    return 0


@click.command(cls=RepeatedOptions)
@pipeline_argument
@run_options
@click.option("--html", type=click.Path(path_type=Path), help="Write an HTML page with charts.")
@bootstrap_option
@json_option
def compare(file: Path, as_json: bool, html: Path | None, **asked: Any) -> int:
    """Compare policies on the same arrivals, seed by seed.

    Every policy runs with every seed, on all cores. The table has means with 95 % intervals and
    differences from the first policy. A policy may have options (loki:headroom=1.1). static-best
    is the best fixed choice, found by search. Several values of --rate, --devices or --slo give a
    comparison for each combination.

    \b
    Example:
      headrace compare pipeline.yaml --arrivals trace.txt --policy loki static-best --seed 1 2 3
      headrace compare pipeline.yaml --rate 80 --seconds 60 --policy loki static --html page.html
    """
    one_blas_thread()
    from headrace.atomic_file import writable, write_page
    from headrace.html.comparison_page import comparison_page
    from headrace.simulation.comparison import as_json as document
    from headrace.simulation.comparison_text import sweep_text
    from headrace.simulation.experiments import compared_points
    from headrace.simulation.sweep import points

    if html is not None:
        writable(html)
    deployed = read_deployed(file)
    request, sweep, world = simulation_request(deployed, asked)
    (_, first), *others = points(request, sweep)
    if html is not None and others:
        raise click.UsageError("--html shows one comparison; give one --rate, --devices and --slo")
    found = compared_points(deployed, request, sweep)
    _say_world(world, request, sweep)
    if html is not None:
        write_page(html, comparison_page(found[0][1], first.workload_text()))
        say(f"wrote {html}")
    if as_json:
        listed = [{**label, **document(each)} for label, each in found]
        print_json({"sweep": listed} if others else listed[0])
    else:
        print_text(sweep_text(found))
    return 0
