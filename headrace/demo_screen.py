"""A demo while it runs: a live table on a terminal, else a line every few seconds."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

from headrace.open_loop import OpenLoop
from headrace.outcomes import outcome
from headrace.terminal import LINE_EVERY_S, say
from headrace.watching import REFRESH_S, Watch
from schemas.pipeline import Pipeline
from streams.kafka import KafkaConfig


class Screen(Protocol):
    """Told after every step of the load; shows it when it is time to."""

    def show(self, loop: OpenLoop) -> None: ...
    def note(self, text: str) -> None: ...


@contextlib.contextmanager
def screen(kafka: KafkaConfig, pipeline: Pipeline, seconds: float) -> Iterator[Screen]:
    """On stderr, so that stdout holds the report only."""
    if not sys.stderr.isatty():
        yield _Lines(seconds)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    with (
        Watch(kafka, pipeline) as watch,
        Live(console=console, auto_refresh=False, transient=True) as live,
    ):
        yield _Table(seconds, watch, live)


def progress_text(loop: OpenLoop, seconds: float) -> str:
    """How far the load is and what has become of it."""
    counts: dict[str, int] = {}
    for answer in loop.answers.values():
        what = outcome(answer)
        counts[what] = counts.get(what, 0) + 1
    said = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    elapsed_s = min(loop.elapsed_s, seconds)
    return f"{elapsed_s:.0f} of {seconds:.0f} s: {loop.sent} sent, {said or 'no answer yet'}"


class _Lines:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = time.monotonic() + LINE_EVERY_S

    def show(self, loop: OpenLoop) -> None:
        if time.monotonic() >= self._due:
            self._due += LINE_EVERY_S
            say(progress_text(loop, self._seconds))

    def note(self, text: str) -> None:
        say(text)


class _Table:
    def __init__(self, seconds: float, watch: Watch, live: Any) -> None:
        self._seconds = seconds
        self._watch = watch
        self._live = live
        self._notes: list[str] = []
        self._due = 0.0

    def show(self, loop: OpenLoop) -> None:
        from rich.console import Group
        from rich.text import Text

        from headrace.status_view import view

        self._watch.feed_at_once()
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + REFRESH_S
        # Without the lag: to ask for it would hold up the load.
        table = view(self._watch.snapshot(with_lag=False))
        said = [Text(progress_text(loop, self._seconds), style="bold")]
        said += [Text(note, style="yellow") for note in self._notes]
        self._live.update(Group(*said, table), refresh=True)

    def note(self, text: str) -> None:
        self._notes.append(text)
