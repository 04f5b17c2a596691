"""The README or a page of docs/ documents every command."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from control.controller.commands import ACTIONS
from control.controller.session_commands import ARGUMENTS
from headrace.cli.main import headrace

ROOT = Path(__file__).parents[2]
TERMINAL = (ROOT / "docs" / "reference" / "terminal.md").read_text(encoding="utf-8")
PAGES = "\n".join(
    path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "commands.md"  # contains the generated help
)


def commands(group: click.Group, path: str = "headrace") -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        here = f"{path} {name}"
        if isinstance(command, click.Group):
            yield from commands(command, here)
        else:
            yield here, command


ALL = dict(commands(headrace))


@pytest.mark.parametrize("path", ALL)
def test_every_command_is_in_the_readme_or_on_a_page(path: str) -> None:
    assert re.search(rf"{re.escape(path)}\b", PAGES), f"write an example of `{path}` into docs/"


def test_the_terminal_page_names_only_existing_commands() -> None:
    named = re.findall(r"^(headrace [a-z-]+(?: [a-z-]+)?)", TERMINAL, flags=re.MULTILINE)
    groups = {path.rsplit(" ", 1)[0] for path in ALL if path.count(" ") == 2}
    wrong = [
        line
        for line in named
        if line not in ALL and (line.rsplit(" ", 1)[0] not in ALL or line in groups)
    ]
    assert (wrong, len(named) > len(ALL) / 2) == ([], True)


@pytest.mark.parametrize("path", ALL)
def test_the_examples_use_existing_options(path: str) -> None:
    known = {option for parameter in ALL[path].params for option in parameter.opts} | {"--help"}
    lines = re.findall(rf"^{re.escape(path)}\b.*$", TERMINAL, flags=re.MULTILINE)
    used = {option for line in lines for option in re.findall(r"(?<=\s)--[a-z-]+", line)}
    assert used <= known


GIVEN = {
    **{action: {argument} - {""} for action, (argument, _) in ACTIONS.items()},
    **ARGUMENTS,
}


@pytest.mark.parametrize("action", GIVEN)
def test_actions_of_the_command_topic_are_listed_with_their_arguments(action: str) -> None:
    text = (ROOT / "docs" / "reference" / "records.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `")]
    (arguments,) = [cells[1] for cells in rows if f"`{action}`" in cells[0]]
    assert {name for name in GIVEN[action] if f"`{name}`" not in arguments} == set()
