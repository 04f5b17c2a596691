"""Terminal output: results on stdout, progress and errors on stderr.

With ``--json`` stdout holds JSON only. Colours and progress bars appear on terminals only;
elsewhere the output is plain lines.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

LINE_EVERY_S = 5.0


_displays: list["Console"] = []  # of the live displays, the newest last


def say(text: str) -> None:
    """Print a message for the user on stderr, above a live display if there is one."""
    if _displays:
        _displays[-1].print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        click.echo(text, err=True)


@contextlib.contextmanager
def display() -> Iterator["Console"]:
    """Yield the console of a live display on stderr."""
    from rich.console import Console

    _displays.append(Console(stderr=True, highlight=False))
    try:
        yield _displays[-1]
    finally:
        _displays.pop()


@contextlib.contextmanager
def library_output_hidden() -> Iterator[None]:
    """Hide what libraries print from C to stdout.

    HiGHS prints a line of its own when it repairs a solution, whatever its options say.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)  # or what was printed before would follow
    stdout, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield
    finally:
        libc.fflush(None)
        os.dup2(stdout, 1)
        os.close(stdout)


def replace_unknown_characters(stream: TextIO) -> None:
    """Let a stream replace what its encoding lacks, such as bars in Latin-1, by question marks."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")


def print_json(value: Any) -> None:
    """Print one line of JSON on stdout."""
    click.echo(json.dumps(value, allow_nan=False))


def print_text(text: str) -> None:
    """Print a result on stdout."""
    click.echo(text)


def rich_console() -> "Console":
    """Return a console on stdout; without colours if stdout is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def print_rich(*parts: Any) -> None:
    """Print tables and other rich parts on stdout; without trailing blanks if it is no terminal."""
    console = rich_console()
    if console.is_terminal:
        console.print(*parts)
        return
    with console.capture() as printed:
        console.print(*parts)
    click.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show what the block waits for, while it lasts; for waits of unknown length."""
    if not sys.stderr.isatty():
        say(what)
        yield
        return
    with display() as console, console.status(what):
        yield


Advance = Callable[[int, str], None]


@contextlib.contextmanager
def progress(what: str, total: int, every_s: float = LINE_EVERY_S) -> Iterator[Advance]:
    """Yield ``advance(done, note)``, which shows progress on stderr.

    On a terminal: a bar with the time left; elsewhere a line every ``every_s`` seconds, 0 for one
    each time.
    """
    if sys.stderr.isatty():
        from rich.progress import TimeRemainingColumn

        with _bar(what, total, TimeRemainingColumn()) as advance:
            yield advance
    else:
        yield _lines(what, total, progress_line, every_s)


@contextlib.contextmanager
def counting(what: str, total: int) -> Iterator[Advance]:
    """Yield ``advance`` as ``progress`` does, for steps of unequal length: elapsed time only."""
    if sys.stderr.isatty():
        from rich.progress import TimeElapsedColumn

        with _bar(what, total, TimeElapsedColumn()) as advance:
            yield advance
    else:
        yield _lines(what, total, counting_line, LINE_EVERY_S)


@contextlib.contextmanager
def _bar(what: str, total: int, clock: "ProgressColumn") -> Iterator[Advance]:
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed}/{task.total}"),
        clock,
        TextColumn("{task.fields[note]}", table_column=rest),
    )
    with (
        display() as console,
        Progress(*columns, console=console, transient=True, expand=True) as bar,
    ):
        task = bar.add_task(what, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)


# what, done, total, elapsed seconds, note
Line = Callable[[str, int, int, float, str], str]


def _lines(what: str, total: int, line: Line, every_s: float) -> Advance:
    lines = SpacedLines(time.monotonic(), every_s)

    def advance(done: int, note: str) -> None:
        if text := lines.due(
            time.monotonic(), lambda elapsed: line(what, done, total, elapsed, note)
        ):
            say(text)

    return advance


class SpacedLines:
    """Which lines a progress prints: one every ``every_s`` seconds, none twice in a row."""

    def __init__(self, began_s: float, every_s: float = LINE_EVERY_S) -> None:
        self._began_s = began_s
        self._every_s = every_s
        self._due_s = began_s + every_s
        self._last = ""

    def due(self, now_s: float, line: Callable[[float], str]) -> str:
        """Return the line that is due at ``now_s``, made of the elapsed seconds; "" if none is."""
        if now_s < self._due_s:
            return ""
        self._due_s = now_s + self._every_s
        text = line(now_s - self._began_s)
        if text == self._last:
            return ""
        self._last = text
        return text


def progress_line(what: str, done: int, total: int, elapsed_s: float, note: str) -> str:
    """Return the progress as plain text, with the time left once a step is done."""
    left = f"about {elapsed_s * (total - done) / done:.0f} s left" if 0 < done < total else ""
    return ", ".join(filter(None, (f"{what}: {done} of {total}", left, note)))


def counting_line(what: str, done: int, total: int, elapsed_s: float, note: str) -> str:
    """Return the progress as plain text, with the elapsed time."""
    return ", ".join(filter(None, (f"{what}: {done} of {total}", f"{elapsed_s:.0f} s", note)))
