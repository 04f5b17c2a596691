"""``headrace profile``: measure every variant."""

from pathlib import Path
from typing import Any

import click

from headrace.cli.shared_options import json_option, pipeline_argument, read_file
from headrace.terminal import print_json, print_text


class _Batches(click.ParamType):
    """Batch sizes from 1, as in 1,2,4."""

    name = "N,N,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of batch sizes; write one such as 1,2,4", param)


@click.command()
@pipeline_argument
@click.option("--device", "devices", multiple=True, help="cpu, cuda:0 ...; may be repeated.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to; beside FILE otherwise.")
@click.option("--batches", type=_Batches(), help="Batch sizes; up to the file's largest otherwise.")
@click.option("--busy", type=click.IntRange(0), help="Further processes that keep devices busy.")
@click.option("--samples", default=1000, show_default=True, help="Inputs for accuracy and fan-out.")
@click.option("--seed", default=0, show_default=True, help="Of the inputs.")
@click.option("--paths", is_flag=True, help="Add the accuracy of whole paths of variants, no more.")
@json_option
def profile(
    file: Path,
    devices: tuple[str, ...],
    out: Path | None,
    paths: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Measure every variant: latency, load, memory, accuracy, fan-out.

    A variant that does not run on a device, such as LightGBM on a GPU, is left out there, and no
    plan uses it on that device.

    With --paths it measures instead the end-to-end accuracy of every path of variants and adds it
    to the existing profile; plans then use it in place of the product of accuracies.

    \b
    Example:
      headrace profile examples/postcode/pipeline.yaml --device cpu
      headrace profile examples/postcode/pipeline.yaml --paths
    """
    from headrace.profiling.device_profiling import ProfilingOptions
    from headrace.profiling.profile_text import (
        paths_json,
        paths_text,
        profiled,
        profiled_paths,
        table_text,
        written_text,
    )

    source, settings = read_file(file), ProfilingOptions(**asked)
    if paths:
        place, table = profiled_paths(source, devices, out, settings)
        print_json(paths_json(table, place)) if as_json else print_text(
            f"{paths_text(table)}\n{written_text(source, place)}"
        )
        return
    place, table = profiled(source, devices, out, settings)
    found = {"out": str(place), "entries": len(table.entries), "left_out": table.left_out}
    print_json(found) if as_json else print_text(
        f"{table_text(table)}\n{written_text(source, place)}"
    )
