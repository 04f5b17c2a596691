"""``headrace dead-letters``: listing, display and replay."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker import connect
from headrace.cli.main import run
from headrace.client.dead_letter_topic import (
    Filed,
    letter_lines,
    letter_rows,
    one_letter,
    preview,
    replayable,
)
from headrace.errors import Unsuccessful
from schemas.records import DeadLetter
from streams.kafka.kafka_config import KafkaConfig

WORDS = Path(__file__).parents[3] / "pipelines" / "lines" / "pipeline.yaml"


def a_letter(value: bytes = b"\xff\x00hello", **changes: object) -> Filed:
    given: dict[str, object] = {
        "topic": "queries", "partition": 2, "offset": 1234, "reason": "the header is no number",
        "headers": (("headrace-id", b"q"), ("odd", b"\x00\n")), "node": "ingress-0",
        "at_s": 1_780_000_000.0,
    }  # fmt: skip
    return Filed("0-17", DeadLetter(value=value, **(given | changes)))  # type: ignore[arg-type]


def test_a_letter_is_one_line_with_its_name_origin_size_and_reason() -> None:
    assert letter_rows([a_letter()]) == [
        "0-17     2026-05-28 20:26:40  queries 2-1234  7 bytes  the header is no number"
    ]


def test_a_line_break_in_a_reason_makes_no_line_that_looks_like_another_letter() -> None:
    forged = "0-18     2026-05-28 20:26:41  queries 2-1235  7 bytes  all is well"
    letter = a_letter(reason=f"no such field:\n{forged}")
    assert len("\n".join(letter_rows([letter])).splitlines()) == 1
    assert f"letter 0-17: no such field: {' '.join(forged.split())}" in letter_lines(letter)


def test_a_letter_is_shown_with_headers_and_the_beginning_of_its_value() -> None:
    assert letter_lines(a_letter()) == [
        "letter 0-17: the header is no number",
        "found 2026-05-28 20:26:40 UTC by ingress-0 at 2-1234 of queries",
        "header headrace-id: q",
        "header odd: '\\x00\\n'",
        "value of 7 bytes:",
        "  0000  ff 00 68 65 6c 6c 6f                             ..hello",
    ]


def test_a_terminal_does_not_act_on_the_name_of_a_header() -> None:
    lines = letter_lines(a_letter(headers=(("\x1b[2J", b"q"),)))
    assert "header '\\x1b[2J': q" in lines


def test_a_long_value_is_cut_and_says_so() -> None:
    lines = letter_lines(a_letter("grüße ".encode() * 100))
    assert "value of 800 bytes, the first 256:" in lines
    assert lines[-1].startswith("  text: 'grüße grüße")


@given(st.binary(max_size=100))
def test_a_preview_holds_every_byte_and_only_printable_text(value: bytes) -> None:
    lines = preview(value)
    rows = [line for line in lines if not line.startswith("  text: ")]
    assert bytes.fromhex("".join(line[8:55] for line in rows)) == value
    assert all(line.isprintable() for line in lines)


def test_json_has_the_value_only_where_it_is_asked_for() -> None:
    row = {
        "letter": "0-17", "at_s": 1_780_000_000.0, "topic": "queries", "partition": 2,
        "offset": 1234, "node": "ingress-0", "reason": "the header is no number", "bytes": 7,
        "headers": {"headrace-id": "q", "odd": "\x00\n"},
    }  # fmt: skip
    assert a_letter().as_json(with_value=False) == row
    assert a_letter().as_json(with_value=True) == {**row, "value": "/wBoZWxsbw=="}


def test_only_letters_from_the_input_topic_can_be_replayed() -> None:
    replayable(a_letter())
    with pytest.raises(Unsuccessful, match=r"letter 0-17 came from work\.read, which only"):
        replayable(a_letter(topic="work.read"))


def test_a_name_that_names_no_letter_is_refused_before_the_broker_is_asked() -> None:
    with pytest.raises(Unsuccessful, match="'first' names no letter; a letter is PARTITION-OFFSET"):
        one_letter(KafkaConfig("127.0.0.1:1"), "words", "first")


def test_json_replay_does_not_prompt_and_requires_yes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "reached", lambda _: pytest.fail("no broker was needed"))
    assert run(["dead-letters", "replay", str(WORDS), "0-17", "--json"]) == 2
    assert "with --json there is no prompt; add --yes" in capsys.readouterr().err
