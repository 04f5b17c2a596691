"""``headrace calibrate`` and ``fidelity``: measure this machine, and certify simulations."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.shared_options import (
    DURATION,
    NumberRange,
    json_option,
    pipeline_argument,
    read_deployed,
)
from headrace.errors import UNSUCCESSFUL
from headrace.terminal import print_json, print_text, say

if TYPE_CHECKING:
    from headrace.fidelity.certificate import Certificate


@click.command()
@pipeline_argument
@click.option("--arrivals", type=click.Path(path_type=Path), help="File of arrival times.")
@click.option("--dilate", type=NumberRange(1), default=1.0, show_default=True,
              help="Slow down live runs by this factor; for emulated devices.")  # fmt: skip
@click.option("--policy", metavar="NAME", help="Policy to run. Default: the file's.")
@click.option(
    "--devices", metavar="N", help="Workers, as in 8 or cpu=4,cuda:0=2. Default: the file's."
)
@click.option("--repeats", type=click.IntRange(3), default=3, show_default=True,
              help="Number of live runs.")  # fmt: skip
@click.option("--simulations", type=click.IntRange(2), default=8, show_default=True,
              help="Number of simulated runs; their seeds start at --seed.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N")
@click.option("--warm-up", type=DURATION, default="0s", show_default=True,
              help="Initial time that is not counted, live and simulated.")  # fmt: skip
@click.option("--until", type=DURATION, help="Cut off the arrivals here, as in 60s.")
@click.option("--world", metavar="PATH|none", help="Calibration, as in simulate.")
@click.option("--history", is_flag=True, help="List all certificates made so far.")
@json_option
def fidelity(
    file: Path,
    arrivals: Path | None,
    dilate: float,
    devices: str | None,
    warm_up: float,
    until: float | None,
    history: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Compare simulations with live runs and write a certificate.

    The command simulates the arrivals from a cold start with this machine's calibration (headrace
    calibrate), and writes and hashes the prediction. Then it runs the arrivals live, each time on
    a temporary local broker with every role as a process. Exit code 1: the error of some metric
    exceeds its bound, its floor and the spread of the live runs. All certificates, including
    misses, are stored in pipeline.certificates for pipeline.yaml.

    \b
    Example:
      headrace fidelity pipeline.yaml --arrivals trace.txt --policy loki --devices 6
      headrace fidelity cluster.yaml --arrivals trace.txt --dilate 8 --until 60s --json
      headrace fidelity pipeline.yaml --history
    """
    from headrace.fidelity.fidelity_run import certificate_request, certify
    from headrace.simulation.overrides import parsed_devices

    read = read_deployed(file)
    if history:
        return _show_history(read.path, as_json)
    if arrivals is None:
        raise click.UsageError("give --arrivals, or --history")
    counts = parsed_devices(devices) if devices else None
    request = certificate_request(
        read, arrivals, devices=counts, dilate=dilate, warm_up_s=warm_up, until_s=until, **options
    )
    say(f"predicted with {request.world.sentence}")
    found, path = certify(request)
    say(f"kept as {path}")
    return print_certificate(found, as_json=as_json)


def print_certificate(found: "Certificate", *, as_json: bool) -> int:
    """Print a certificate; return the exit code."""
    from headrace.fidelity.certificate_text import certificate_text

    print_json(found.as_json()) if as_json else print_text(certificate_text(found))
    return 0 if found.met else UNSUCCESSFUL


def _show_history(path: Path, as_json: bool) -> int:
    from headrace.fidelity.certificate_store import stored_certificates
    from headrace.fidelity.certificate_text import history_text

    kept = stored_certificates(path)
    if as_json:
        print_json([
            {"prediction": each.at, "genuine": each.genuine,
             "certificate": each.certificate.as_json() if each.certificate else None}
            for each in kept
        ])  # fmt: skip
    elif kept:
        print_text(history_text(kept))
    else:
        print_text(f"no certificate of {path.name} was made yet; run `headrace fidelity`")
    return 0


@click.command()
@pipeline_argument
@click.option("--rate", type=NumberRange(0, min_open=True), multiple=True, metavar="QPS",
              help="Queries/s to measure at; a single rate also at half of it. Default: a "
              "quarter and a half of the planned capacity.")  # fmt: skip
@click.option("--seconds", type=DURATION, default="20s", show_default=True,
              help="Time at each rate in each pass, from a cold start.")  # fmt: skip
@click.option("--passes", type=click.IntRange(1), default=2, show_default=True,
              help="Number of measurements of each rate.")  # fmt: skip
@click.option("--dilate", type=NumberRange(1), default=1.0, show_default=True,
              help="Slow down time by this factor; for emulated devices.")  # fmt: skip
@click.option("--policy", metavar="NAME", help="Policy to run. Default: the file's.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N")
@click.option("--out", type=click.Path(path_type=Path), help="File to store the calibration in.")
@json_option
def calibrate(
    file: Path, rate: tuple[float, ...], seconds: float, passes: int, dilate: float,
    policy: str | None, seed: int, out: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Measure this machine and its broker for simulations.

    The command runs the pipeline on a temporary local broker, every role as a process, under
    Poisson arrivals of a few rates, each from a cold start of its own. It measures hops, the times
    into and out of the pipeline, and the starts and durations of batches, by rate and by the number
    of busy devices.

    The calibration is stored beside the file, as pipeline.world.json for pipeline.yaml. simulate,
    compare, plan and fidelity use it as long as it fits.

    \b
    Example:
      headrace calibrate pipeline.yaml
      headrace calibrate cluster.yaml --rate 220 --dilate 4 --seconds 10s
    """
    from headrace.atomic_file import writable
    from headrace.fidelity.calibration_run import CalibrationRequest
    from headrace.fidelity.calibration_run import calibrate as measured
    from headrace.fidelity.calibration_text import calibration_text
    from headrace.simulation.world_file import as_json as document
    from headrace.simulation.world_file import store, world_path

    read = read_deployed(file)
    path = out or world_path(read.path)
    writable(path, "--out")  # before minutes of measurement
    found = measured(
        CalibrationRequest(
            file=read, rates_qps=rate, seconds=seconds, passes=passes, dilate=dilate,
            policy=policy, seed=seed,
        )
    )  # fmt: skip
    store(found, path)
    print_json(document(found)) if as_json else print_text(calibration_text(found))
    say(f"stored as {path}")
    return 0
