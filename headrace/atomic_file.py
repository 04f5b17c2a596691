"""Atomic file writes."""

import os
from contextlib import suppress
from pathlib import Path

import click


def writable(path: Path, option: str = "--html") -> None:
    """Raise ``click.UsageError``, naming the option, if no file can be written to ``path``."""
    if path.is_dir():
        raise click.UsageError(f"{option} {path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise click.UsageError(f"{option} {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise click.UsageError(f"{option} {path}: {path.parent} cannot be written to; name another")


def write_whole(path: Path, text: str) -> None:
    """Write a temporary file, then rename it: no reader sees a partial file.

    Raises ``OSError`` on failure; the temporary file is then removed.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def write_page(path: Path, text: str) -> None:
    """Write a page atomically; raises ``click.UsageError`` on failure."""
    try:
        write_whole(path, text)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error
