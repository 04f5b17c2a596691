"""``headrace init``: write a starter pipeline."""

from pathlib import Path

import click

from headrace.cli.shared_options import json_option
from headrace.terminal import print_json, print_text


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", default="", help="The pipeline's name. Without it the folder's.")
@json_option
def init(folder: Path, name: str, as_json: bool) -> None:
    """Write a starter pipeline that runs unchanged; overwrites nothing.

    \b
    Example:
      headrace init reviews
      headrace up reviews/pipeline.yaml
    """
    from headrace.config.scaffold import starter_files, starter_names, write_starter

    names = starter_names(folder.resolve().name, name)
    written = write_starter(folder, starter_files(names))
    if as_json:
        print_json({"pipeline": names.pipeline, "files": [str(path) for path in written]})
        return
    listed = "\n".join(f"  {path}" for path in written)
    print_text(f"pipeline {names.pipeline}:\n{listed}\nnext: headrace up {written[0]}")
