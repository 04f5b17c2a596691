"""``headrace fidelity``: certify the error of a pipeline's simulation against a live run."""

from pathlib import Path

import click

from headrace.cli.shared_options import DurationType, json_option, pipeline_argument, read_deployed
from headrace.terminal import print_json, print_text, say


@click.command()
@pipeline_argument
@click.option(
    "--arrivals", type=click.Path(path_type=Path), required=True, help="A file of arrival times."
)
@click.option("--dilate", type=click.FloatRange(1), default=1.0, show_default=True,
              help="Let time go so many times slower live; for emulated devices.")  # fmt: skip
@click.option("--policy", metavar="NAME", help="The policy; without it the file's.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N")
@click.option("--warm-up", type=DurationType(), default="10s", show_default=True,
              help="Of the arrivals; tells of the machine and is not counted.")  # fmt: skip
@click.option("--until", type=DurationType(), help="Cut the arrivals there, as in 60s.")
@click.option("--simulations", type=click.IntRange(1), default=3, show_default=True,
              help="So many, with seeds from --seed on; their mean is compared.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="Where to store the certificate.")
@json_option
def fidelity(
    file: Path,
    arrivals: Path,
    dilate: float,
    policy: str | None,
    seed: int,
    warm_up: float,
    until: float | None,
    simulations: int,
    out: Path | None,
    as_json: bool,
) -> int:
    """Run arrivals live and simulated, and certify the differences.

    The live run has a temporary local broker and every role as a process; the simulation has the
    same arrivals, seed and policy. The certificate is stored beside the pipeline file, as
    pipeline.fidelity.json for pipeline.yaml.

    \b
    Example:
      headrace fidelity pipeline.yaml --arrivals trace.txt
      headrace fidelity cluster.yaml --arrivals trace.txt --dilate 8 --until 60s --json
    """
    from headrace.fidelity.certificate_text import text
    from headrace.fidelity.fidelity_run import asked, certify, place, store

    read = read_deployed(file)
    wish = asked(
        read, arrivals, policy=policy, seed=seed, dilate=dilate, warm_up_s=warm_up, until_s=until,
        simulations=simulations,
    )  # fmt: skip
    found = certify(wish)
    path = out or place(read.path)
    store(found, path)
    print_json(found.as_json()) if as_json else print_text(text(found))
    say(f"stored as {path}")
    return 0
