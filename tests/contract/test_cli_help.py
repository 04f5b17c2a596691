"""Every command has help with an example, and the help matches the recorded text.

After a change of the help: HEADRACE_RECORD=1 pytest tests/contract/test_cli_help.py, and review
the difference.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headrace.cli.main import headrace

GOLDEN = Path(__file__).parents[1] / "golden" / "cli_help.txt"


def commands(
    group: click.Command = headrace, path: tuple[str, ...] = ("headrace",)
) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), group
    if isinstance(group, click.Group):
        for name, command in sorted(group.commands.items()):
            yield from commands(command, (*path, name))


def help_of(path: str, command: click.Command) -> str:
    settings = headrace.context_settings
    with click.Context(command, info_name=path, terminal_width=100, **settings) as context:
        return command.get_help(context)


@pytest.mark.parametrize(("path", "command"), [pytest.param(*c, id=c[0]) for c in commands()])
def test_every_command_has_help_with_an_example(path: str, command: click.Command) -> None:
    text = help_of(path, command)
    example = "Begin with:" if command is headrace else "Example:"
    assert example in text
    assert f"    {path}" in text.partition(example)[2]
    assert command is headrace or len(command.get_short_help_str(300)) <= 68  # fits in the overview


def test_the_help_is_the_recorded_one() -> None:
    found = "\n\n".join(f"$ {path} --help\n{help_of(path, c)}" for path, c in commands()) + "\n"
    if os.environ.get("HEADRACE_RECORD"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()
