"""``headrace compare``: compare policies on the same arrivals."""

import os
from pathlib import Path
from typing import Any

import click

from headrace.cli.shared_options import (
    bootstrap_option,
    json_option,
    pipeline_argument,
    read_deployed,
)
from headrace.cli.simulate import RepeatedOptions, run_options
from headrace.terminal import print_json, print_text, say


@click.command(cls=RepeatedOptions)
@pipeline_argument
@run_options
@click.option(
    "--html", type=click.Path(path_type=Path), help="Write a page with charts, for any browser."
)
@bootstrap_option
@json_option
def compare(file: Path, as_json: bool, html: Path | None, **asked: Any) -> int:
    """Compare policies on the same arrivals, seed by seed.

    Every policy plays every seed, on all cores. The table has means with 95 % intervals and
    differences from the first policy. A policy may have options (loki:headroom=1.1);
    static-best is the best fixed choice, found by search.

    \b
    Example:
      headrace compare pipeline.yaml --arrivals trace.txt --policy loki static-best --seed 1 2 3
      headrace compare pipeline.yaml --rate 80 --seconds 60 --policy loki static --html page.html
    """
    # Model selection tables are small matrix products, as in ``headrace plan``.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from headrace.atomic_file import writable, write_page
    from headrace.html.comparison_page import comparison_page
    from headrace.simulation.comparison import as_json as document
    from headrace.simulation.comparison import compare as compared
    from headrace.simulation.comparison_text import comparison_text

    if html is not None:
        writable(html)
    made = compared(read_deployed(file), asked)
    if html is not None:
        write_page(html, comparison_page(made, asked))
        say(f"wrote {html}")
    print_json(document(made)) if as_json else print_text(comparison_text(made))
    return 0
