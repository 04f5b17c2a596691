"""Progress of a load beside the status of its pipeline: a live table on a terminal."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING

from headrace.config.cluster_cost import prices
from headrace.config.pipeline_file import PipelineFile
from headrace.status.watch import REFRESH_S, Watch
from headrace.terminal import Advance, display, progress
from streams.kafka.kafka_config import KafkaConfig

if TYPE_CHECKING:
    from rich.live import Live

Shown = Callable[[str, int], AbstractContextManager[Advance]]


def watching(kafka: KafkaConfig, file: PipelineFile) -> Shown:
    """Return a ``progress`` that shows the pipeline's status too, on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        return progress

    @contextlib.contextmanager
    def table(what: str, total: int) -> Iterator[Advance]:
        from rich.live import Live

        with (
            display() as console,
            closing(Watch(kafka, file.pipeline, prices(file.cluster))) as watch,
            Live(console=console, auto_refresh=False, transient=True) as live,
        ):
            yield _advance(what, total, watch, live)

    return table


def _advance(what: str, total: int, watch: Watch, live: "Live") -> Advance:
    from rich.console import Group
    from rich.text import Text

    from headrace.status.status_text import view

    due = 0.0

    def advance(done: int, note: str) -> None:
        nonlocal due
        watch.feed_at_once()
        if time.monotonic() < due:
            return
        due = time.monotonic() + REFRESH_S
        # Without the lag: reading it would delay the load.
        table = view(watch.snapshot(with_lag=False), live.console.width)
        line = Text(f"{what}: {done} of {total}; {note}", style="bold")
        live.update(Group(line, table), refresh=True)

    return advance
