"""``headrace capacity``: the highest rate that keeps the SLO."""

import os
from pathlib import Path
from typing import Any

import click

from headrace.cli.shared_options import (
    DurationType,
    RepeatedOptions,
    json_option,
    pipeline_argument,
    read_file,
)
from headrace.terminal import print_json, print_text


class MixType(click.ParamType):
    """Devices by type, TYPE=N,... as in g4dn.xlarge=1,r5n.large=13."""

    name = "TYPE=N[,TYPE=N...]"

    def convert(self, value: Any, param: Any, ctx: Any) -> dict[str, int]:
        if isinstance(value, dict):
            return value
        found: dict[str, int] = {}
        for part in str(value).split(","):
            name, equals, count = part.partition("=")
            if not equals or not name or not count.isdigit():
                self.fail(f"{part!r} is no TYPE=N; write as in gpu=1,cpu=4", param, ctx)
            if name in found:
                self.fail(f"{name!r} is named twice", param, ctx)
            found[name] = int(count)
        return found


@click.command(cls=RepeatedOptions)
@pipeline_argument
@json_option
@click.option("--policy", multiple=True, metavar="NAME", help="Policies; without it the file's.")
@click.option("--mix", type=MixType(), help="Devices by type, in place of the file's.")
@click.option(
    "--attainment",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.99,
    show_default=True,
    help="Share of all queries to be answered in time.",
)
@click.option(
    "--seed", multiple=True, type=click.IntRange(0), metavar="N", help="Seeds; without it 0."
)
@click.option(
    "--queries", type=click.IntRange(100), default=10_000, show_default=True, help="Per trial."
)
@click.option("--sizes", type=click.Path(path_type=Path), help="CSV of size,probability.")
@click.option("--warm-up", type=DurationType(), help="Not counted, per trial; 0s to 10s by policy.")
def capacity(file: Path, as_json: bool, **asked: Any) -> int:
    """Find the highest rate that keeps the SLO, in virtual time.

    The rate of a Poisson process is bisected to 1 %; late, dropped, refused and lost queries count
    against the attainment. Every policy and seed is one search; searches share all cores.

    \b
    Example:
      headrace capacity pipeline.yaml --policy loki static
      headrace capacity rank.yaml --policy kairos fcfs --mix g4dn.xlarge=1,r5n.large=13 --json
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from headrace.simulation.capacity_search import (
        CapacityOptions,
        capacity_text,
        requests,
        searched,
    )

    options = CapacityOptions(
        policies=asked["policy"], seeds=asked["seed"], mix=asked["mix"], sizes=asked["sizes"],
        attainment=asked["attainment"], queries=asked["queries"], warm_up_s=asked["warm_up"],
    )  # fmt: skip
    found = searched(requests(read_file(file), options))
    rows = [each.as_json() for each in found]
    print_json(rows) if as_json else print_text(capacity_text(rows))
    return 0
