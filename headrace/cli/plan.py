"""``headrace plan`` and ``capacity``: the plan for a demand, and the highest rate in the SLO."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.shared_options import (
    DURATION,
    NumberRange,
    Parsed,
    RepeatedOptions,
    json_option,
    one_blas_thread,
    pipeline_argument,
    read_deployed,
    read_file,
)
from headrace.errors import INFEASIBLE
from headrace.terminal import library_output_hidden, print_json, print_text, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.config.pipeline_file import PipelineFile
    from headrace.planning.device_mix import MixRequest
    from headrace.planning.dry_run import PlanRequest


def _demands(text: str) -> tuple[float, ...]:
    try:
        found = tuple(map(float, text.split(",")))
    except ValueError:
        raise ValueError(f"{text!r} is no list of rates; write queries/s, as in 50,100.5") from None
    if not all(0 <= each < float("inf") for each in found):
        raise ValueError(f"{text!r} has a rate below 0 or without end")
    return found


@click.command()
@pipeline_argument
@json_option
@click.option("--demand", type=Parsed("Q[,Q...]", _demands), help="Queries/s to plan for.")
@click.option(
    "--budget",
    type=NumberRange(0, min_open=True),
    metavar="USD",
    help="Rank the mixes of device types within this budget ($ per hour), and pick one.",
)
@click.option("--cheapest", is_flag=True, help="With --demand: find the cheapest mix for it.")
@click.option(
    "--sizes", type=click.Path(path_type=Path), help="Query sizes: CSV of size,probability."
)
@click.option("--bound", type=click.Choice(["eq15", "fluid"]), help="Bound that ranks the mixes.")
@click.option(
    "--pick", type=click.Choice(["paper", "first", "simulate"]), help="How a mix is picked."
)
@click.option(
    "--top",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of mixes to show.",
)
@click.option(
    "--devices",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of devices. Default: the file's.",
)
@click.option("--slo", type=DURATION, help="SLO, as in 250ms. Default: the file's.")
@click.option("--comm", type=DURATION, help="Latency of one hop. Default: the file's.")
@click.option("--policy", metavar="NAME", help="Policy: loki, ramsis, ... Default: the file's.")
@click.option(
    "--solver", type=click.Choice(["highs", "cbc"]), help="MILP solver. Default: the policy's."
)
@click.option(
    "--world",
    metavar="PATH|none",
    help="Calibration that slows down real devices, as in simulate.",
)
@click.option("--table", is_flag=True, help="ramsis: show all decisions by queue and slack.")
@click.option(
    "--violation",
    type=NumberRange(0, 1),
    metavar="SHARE",
    help="ramsis: maximise accuracy with at most this share of late queries.",
)
def plan(
    file: Path, as_json: bool, demand: tuple[float, ...] | None, budget: float | None,
    cheapest: bool, sizes: Path | None, bound: str | None, pick: str | None, top: int,
    devices: int | None,
    slo: float | None, comm: float | None, policy: str | None, solver: str | None,
    world: str | None, table: bool, violation: float | None,
) -> int:  # fmt: skip
    """Show the plan for a demand: variants, batches, devices.

    Nothing is started. --json prints one line per demand, in order. Exit code 3: a demand cannot
    be met; its plan names the binding constraint and the demand that can be met.

    \b
    Example:
      headrace plan examples/postcode/pipeline.yaml --demand 20,40,80 --policy loki
      headrace plan rank.yaml --budget 2.5
      headrace plan rank.yaml --demand 120 --cheapest
    """
    one_blas_thread()
    of_plans = {"devices": devices, "comm": comm, "solver": solver, "world": world,
                "table": table or None, "violation": violation}  # fmt: skip
    of_mixes = {"sizes": sizes, "bound": bound, "pick": pick}
    if cheapest or budget is not None or demand is None:
        _refuse(of_plans, "mixes of device types; give --demand alone, or leave it out")
        from headrace.planning.device_mix import MixRequest

        request = MixRequest(
            budget=budget, sizes=sizes, bound=bound, pick=pick, top=top, slo_s=slo, policy=policy
        )
        return _mix(read_file(file), request, demand, cheapest, as_json)
    _refuse(of_mixes, "plans of the file's devices; leave it out")
    from headrace.planning.dry_run import PlanRequest
    from headrace.planning.table_plans import selects

    read = read_deployed(file)
    stretches, note = _stretches(read, world)
    asked = PlanRequest(
        demands_qps=demand, devices=devices, slo_s=slo, comm_s=comm, policy=policy, solver=solver,
        stretches=stretches,
    )  # fmt: skip
    if selects(read, asked):
        _refuse({"world": world}, "tables of ramsis and its kin; leave it out")
        return _tables(read, asked, violation, as_json, table)
    if table or violation is not None:
        raise click.UsageError("--table and --violation are for ramsis and its kin; see --policy")
    code = _plans(read, asked, as_json)
    if note:
        say(note)
    return code


def _refuse(given: "Mapping[str, object]", what: str) -> None:
    """Raise ``click.UsageError`` for an option that has no effect on what is planned."""
    for name, value in given.items():
        if value is not None:
            raise click.UsageError(f"--{name} has no effect on {what}")


def _plans(file: "PipelineFile", asked: "PlanRequest", as_json: bool) -> int:
    """Print the plans of policies that allocate devices; return the exit code."""
    from headrace.planning.dry_run import as_json as line
    from headrace.planning.dry_run import dry_run_plans
    from headrace.planning.plan_text import plan_text

    code = 0
    for at, planned in enumerate(dry_run_plans(file, asked)):
        if as_json:
            print_json(line(planned))
        else:
            print_text(("\n" if at else "") + plan_text(planned))
        code = code if planned.allocation.feasible else INFEASIBLE
    return code


def _stretches(file: "PipelineFile", world: str | None) -> tuple[dict[str, float], str]:
    """Return how much slower real devices are than planned, as calibrated, and a sentence on it.

    Emulated devices run at their profile's speed, so no calibration changes their plans.
    """
    from headrace.fidelity.certificate_store import known_drift
    from headrace.simulation.world_file import chosen_world, real_kinds, stretches_by_kind

    if not real_kinds(file):
        return {}, ""
    found = chosen_world(file, world)
    stretches = {} if found.calibration is None else stretches_by_kind(found.calibration, file)
    slower = "".join(f"; {kind} takes {by:.2f} times as long" for kind, by in stretches.items())
    drift = known_drift(file.path, found.sha256)
    return stretches, f"planned with {found.sentence}{slower}{drift}"


def _mix(
    file: "PipelineFile", asked: "MixRequest", demand: tuple[float, ...] | None,
    cheapest: bool, as_json: bool,
) -> int:  # fmt: skip
    """Print the mix of device types for a budget or a demand; return the exit code."""
    from headrace.planning.device_mix import cheapest_mix, planned_mix
    from headrace.planning.mix_output import (
        cheapest_as_json,
        cheapest_text,
        mix_as_json,
        mix_text,
    )

    if cheapest and (demand is None or len(demand) != 1):
        raise click.UsageError("--cheapest needs one --demand, in queries/s")
    if demand is not None and asked.budget is not None:
        raise click.UsageError(
            "--demand and --budget exclude each other; give --budget for the best mix within it, "
            "or --demand with --cheapest for the cheapest mix that carries it"
        )
    if demand is not None:
        of_rankings = {"bound": asked.bound, "pick": asked.pick}
        _refuse(of_rankings, "the cheapest mix, which is found by the fluid bound; leave it out")
        with library_output_hidden():
            found = cheapest_mix(file, asked, demand[0])
        print_json(cheapest_as_json(found)) if as_json else print_text(cheapest_text(found))
        return INFEASIBLE if found.found is None else 0
    if asked.budget is None and file.cluster.budget is None:
        raise click.UsageError("give --demand, in queries/s, or --budget, in $ per hour")
    from headrace.simulation.capacity_search import mix_simulator

    planned = planned_mix(file, asked, mix_simulator(file, asked))
    print_json(mix_as_json(planned)) if as_json else print_text(mix_text(planned))
    return INFEASIBLE if planned.picked is None else 0


def _tables(
    file: "PipelineFile", asked: "PlanRequest", violation: float | None, as_json: bool, table: bool
) -> int:
    """Print the plans of policies that select a model per batch; return the exit code."""
    from headrace.planning.table_plans import as_json as line
    from headrace.planning.table_plans import as_text, planned_tables

    code = 0
    for at, made in enumerate(planned_tables(file, asked, violation)):
        if as_json:
            print_json(line(made, table))
        else:
            print_text(("\n" if at else "") + as_text(made, table))
        code = code if made.plan.feasible else INFEASIBLE
    return code


def _mix_of(text: str) -> dict[str, int]:
    """Return the devices by type of TYPE=N,... as in g4dn.xlarge=1,r5n.large=13."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, count = part.partition("=")
        if not equals or not name or not count.isdigit():
            raise ValueError(f"{part!r} is no TYPE=N; write as in gpu=1,cpu=4")
        if name in found:
            raise ValueError(f"{name!r} is named twice")
        found[name] = int(count)
    return found


MIX = Parsed("TYPE=N[,TYPE=N...]", _mix_of)


@click.command(cls=RepeatedOptions)
@pipeline_argument
@json_option
@click.option("--policy", multiple=True, metavar="NAME", help="Policies. Default: the file's.")
@click.option("--mix", type=MIX, help="Devices by type. Default: the file's.")
@click.option(
    "--attainment",
    type=NumberRange(0, 1, min_open=True),
    default=0.99,
    show_default=True,
    help="Share of all queries that must be answered in time.",
)
@click.option(
    "--seed", multiple=True, type=click.IntRange(0), metavar="N", help="Seeds. Default: 0."
)
@click.option(
    "--queries",
    type=click.IntRange(100),
    default=10_000,
    show_default=True,
    help="Number per trial.",
)
@click.option(
    "--sizes", type=click.Path(path_type=Path), help="Query sizes: CSV of size,probability."
)
@click.option(
    "--warm-up", type=DURATION,
    help="Initial time of a trial that is not counted. Default: 0s to 10s, by policy.",
)  # fmt: skip
def capacity(file: Path, as_json: bool, **asked: Any) -> int:
    """Find the highest rate that keeps the SLO, in virtual time.

    The command bisects the rate of a Poisson process to 1 %. Late, dropped, refused and lost
    queries count against the attainment. Every policy and seed is one search; searches run in
    parallel on all cores.

    \b
    Example:
      headrace capacity pipeline.yaml --policy loki static
      headrace capacity rank.yaml --policy kairos fcfs --mix g4dn.xlarge=1,r5n.large=13 --json
    """
    one_blas_thread()
    from headrace.simulation.capacity_search import (
        CapacityOptions,
        capacity_text,
        requests,
        searched_capacities,
    )

    options = CapacityOptions(
        policies=asked["policy"], seeds=asked["seed"], mix=asked["mix"], sizes=asked["sizes"],
        attainment=asked["attainment"], queries=asked["queries"], warm_up_s=asked["warm_up"],
    )  # fmt: skip
    found = searched_capacities(requests(read_file(file), options))
    rows = [each.as_json() for each in found]
    print_json(rows) if as_json else print_text(capacity_text(rows))
    return 0
