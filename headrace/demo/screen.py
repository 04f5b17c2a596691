"""Progress of a running demo: a live table on a terminal, else a line every few seconds."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Protocol

from headrace.client.open_loop import OpenLoop
from headrace.status.watch import REFRESH_S, Watch
from headrace.terminal import LINE_EVERY_S, say
from operators.outcomes import OUTCOMES, outcome_of
from schemas.pipeline import Pipeline
from streams.kafka.kafka_config import KafkaConfig

NOTES = 3  # the newest


class Screen(Protocol):
    """A display of the load; ``show`` is called after every step and refreshes when due."""

    def show(self) -> None: ...
    def note(self, text: str) -> None: ...


@contextlib.contextmanager
def screen(kafka: KafkaConfig, pipeline: Pipeline, line: Callable[[], str]) -> Iterator[Screen]:
    """Yield a screen on stderr (stdout holds the report only); ``line`` returns the progress."""
    if not sys.stderr.isatty():
        yield _Lines(line)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    with (
        closing(Watch(kafka, pipeline)) as watch,
        Live(console=console, auto_refresh=False, transient=True) as live,
    ):
        yield _Table(line, watch, live)


def outcomes_text(loop: OpenLoop) -> str:
    """Return the outcomes of a load so far as text."""
    counts: dict[str, int] = {}
    for answer in loop.answers.values():
        what = outcome_of(answer)
        counts[what] = counts.get(what, 0) + 1
    said = ", ".join(f"{counts[what]} {what}" for what in OUTCOMES if what in counts)
    return said or "no answer yet"


class _Lines:
    def __init__(self, line: Callable[[], str]) -> None:
        self._line = line
        self._due = time.monotonic() + LINE_EVERY_S

    def show(self) -> None:
        if time.monotonic() >= self._due:
            self._due += LINE_EVERY_S
            say(self._line())

    def note(self, text: str) -> None:
        say(text)


class _Table:
    def __init__(self, line: Callable[[], str], watch: Watch, live: Any) -> None:
        self._line = line
        self._watch = watch
        self._live = live
        self._notes: list[str] = []
        self._due = 0.0

    def show(self) -> None:
        from rich.console import Group
        from rich.text import Text

        from headrace.status.status_text import view

        self._watch.feed_at_once()
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + REFRESH_S
        # Without the lag: reading it would delay the load.
        table = view(self._watch.snapshot(with_lag=False))
        said = [Text(self._line(), style="bold")]
        said += [Text(note, style="yellow") for note in self._notes[-NOTES:]]
        self._live.update(Group(*said, table), refresh=True)

    def note(self, text: str) -> None:
        self._notes.append(text)
