"""headrace/terminal.py: where messages to the user are written."""

import ctypes
import io

import pytest

from headrace.terminal import (
    LINE_EVERY_S,
    SpacedLines,
    display,
    library_output_hidden,
    print_json,
    replace_unknown_characters,
    say,
)


def test_messages_go_above_a_live_display_or_else_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with display() as console, console.capture() as above:
        say("policy [fast] is in force")
    assert above.get() == "policy [fast] is in force\n"
    say("over")
    assert capsys.readouterr() == ("", "over\n")


def test_a_terminal_without_a_character_gets_a_question_mark() -> None:
    """`explain` ended with a traceback in a Latin-1 terminal, whose bars it lacks."""
    stream = io.TextIOWrapper(out := io.BytesIO(), "latin-1")
    replace_unknown_characters(stream)
    stream.write("± 0.1 \u2588\u2591")
    stream.flush()
    assert out.getvalue() == "± 0.1 ??".encode("latin-1")


def test_what_a_library_prints_from_c_is_hidden(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """HiGHS printed "HighsMipSolverData::... tmpSolver.run();" among the results."""
    libc = ctypes.CDLL(None)
    print_json({"of": 1})
    with library_output_hidden():
        libc.puts(b"tmpSolver.run();")
    print_json({"of": 2})
    assert capfd.readouterr() == ('{"of": 1}\n{"of": 2}\n', "")


def test_a_progress_that_stands_still_prints_its_line_once() -> None:
    """`headrace load` repeated "sending, seconds: 4 of 4, 20 sent, 18 answered" every five seconds
    until the deadline of the last query."""
    lines = SpacedLines(0.0)
    texts = ["4 of 4", "4 of 4", "4 of 4", "5 of 4"]
    said = [
        lines.due(at * LINE_EVERY_S, lambda _, text=text: text) for at, text in enumerate(texts, 1)
    ]
    assert said == ["4 of 4", "", "", "5 of 4"]
    assert lines.due(4.5 * LINE_EVERY_S, lambda _: "6 of 4") == ""
