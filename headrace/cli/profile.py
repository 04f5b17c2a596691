"""``headrace profile``: measure every variant."""

from pathlib import Path
from typing import Any

import click

from headrace.cli.shared_options import Parsed, json_option, pipeline_argument, read_file
from headrace.terminal import print_json, print_text


def _batches(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise ValueError(f"{text!r} is no list of batch sizes; write one such as 1,2,4") from None


BATCHES = Parsed("N,N,...", _batches)


@click.command()
@pipeline_argument
@click.option("--device", "devices", multiple=True, help="Device: cpu, cuda:0 ...; repeatable.")
@click.option("--out", type=click.Path(path_type=Path), help="File to write. Default: beside FILE.")
@click.option("--batches", type=BATCHES, help="Batch sizes. Default: up to the file's largest.")
@click.option("--busy", type=click.IntRange(0), help="Number of processes that keep devices busy.")
@click.option("--samples", default=1000, show_default=True, help="Inputs for accuracy and fan-out.")
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs.")
@click.option("--paths", is_flag=True, help="Only add the accuracy of whole paths of variants.")
@json_option
def profile(
    file: Path,
    devices: tuple[str, ...],
    out: Path | None,
    paths: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Measure variants: latency, load time, memory, accuracy, fan-out.

    A variant that does not run on a device, such as LightGBM on a GPU, has no profile for that
    device, and no plan uses it there.

    With --paths the command instead measures the end-to-end accuracy of every path of variants and
    adds it to the existing profile. Plans then use it instead of the product of accuracies.

    \b
    Example:
      headrace profile examples/postcode/pipeline.yaml --device cpu
      headrace profile examples/postcode/pipeline.yaml --paths
    """
    from headrace.atomic_file import writable
    from headrace.profiling.device_profiling import ProfilingOptions
    from headrace.profiling.profile_text import (
        paths_json,
        paths_text,
        profile_summary,
        profiled_paths,
        written_profile,
        written_text,
    )

    source, settings = read_file(file), ProfilingOptions(**asked)
    if out is not None:
        writable(out, "--out")  # before minutes of measurement
    if paths:
        place, table = profiled_paths(source, devices, out, settings)
        print_json(paths_json(table, place)) if as_json else print_text(
            f"{paths_text(table)}\n{written_text(source, place)}"
        )
        return
    place, table = written_profile(source, devices, out, settings)
    found = {"out": str(place), "entries": len(table.entries), "left_out": table.left_out}
    print_json(found) if as_json else print_text(
        f"{profile_summary(table)}\n{written_text(source, place)}"
    )
