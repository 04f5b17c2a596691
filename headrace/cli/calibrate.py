"""``headrace calibrate``: measure this machine, for simulations."""

from pathlib import Path

import click

from headrace.cli.shared_options import DurationType, json_option, pipeline_argument, read_deployed
from headrace.terminal import print_json, print_text, say


@click.command()
@pipeline_argument
@click.option("--rate", type=click.FloatRange(0, min_open=True), multiple=True, metavar="QPS",
              help="Measure at this many queries/s; one: also at half of it; without it, at "
              "a quarter and a half of the planned capacity.")  # fmt: skip
@click.option("--seconds", type=DurationType(), default="20s", show_default=True,
              help="At each rate, in each pass.")  # fmt: skip
@click.option("--passes", type=click.IntRange(1), default=2, show_default=True,
              help="Measure every rate this often.")  # fmt: skip
@click.option("--dilate", type=click.FloatRange(1), default=1.0, show_default=True,
              help="Slow time by this factor; for emulated devices.")  # fmt: skip
@click.option("--policy", metavar="NAME", help="The policy; without it the file's.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N")
@click.option("--out", type=click.Path(path_type=Path), help="Where to store the calibration.")
@json_option
def calibrate(
    file: Path, rate: tuple[float, ...], seconds: float, passes: int, dilate: float,
    policy: str | None, seed: int, out: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Measure this machine and its broker, for simulations.

    Runs the pipeline on a temporary local broker, every role as a process, under Poisson arrivals
    of a few rates. Records hops, ways in and out, starts and durations of batches by rate and by
    the number of busy devices. Stored beside the file, as pipeline.world.json for pipeline.yaml;
    simulate, compare, plan and fidelity use it while it fits.

    \b
    Example:
      headrace calibrate pipeline.yaml
      headrace calibrate cluster.yaml --rate 220 --dilate 4 --seconds 10s
    """
    from headrace.fidelity.calibration_run import CalibrationRequest
    from headrace.fidelity.calibration_run import calibrate as measured
    from headrace.fidelity.calibration_text import calibration_text
    from headrace.simulation.world_file import as_json as document
    from headrace.simulation.world_file import place, store

    read = read_deployed(file)
    found = measured(
        CalibrationRequest(
            file=read, rates_qps=rate, seconds=seconds, passes=passes, dilate=dilate,
            policy=policy, seed=seed,
        )
    )  # fmt: skip
    path = out or place(read.path)
    store(found, path)
    print_json(document(found)) if as_json else print_text(calibration_text(found))
    say(f"stored as {path}")
    return 0
