"""headrace/terminal.py: where messages to the user are written."""

import pytest

from headrace.terminal import display, say


def test_messages_go_above_a_live_display_or_else_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with display() as console, console.capture() as above:
        say("policy [fast] is in force")
    assert above.get() == "policy [fast] is in force\n"
    say("over")
    assert capsys.readouterr() == ("", "over\n")
