"""Log lines as text and as JSON."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

from headrace.config.topology import Share
from headrace.roles.observability.log_format import (
    FORMAT_VARIABLE,
    FORMATTERS,
    LEVEL_VARIABLE,
    REPEAT_S,
    Seldom,
    configure,
    log_text,
)
from headrace.roles.observability.log_options import (
    METRICS_HOST_VARIABLE,
    METRICS_VARIABLE,
    LogOptions,
    role_options,
)
from headrace.roles.observability.observability import tell_idle
from streams.kafka.kafka_errors import BrokerError
from streams.observers.journal import tell

AT_S = 1_780_000_000.123


def record(name: str = "headrace.node", text: str = "it is done", **extra: Any) -> Any:
    made = logging.LogRecord(name, logging.WARNING, "", 0, "%s", (text,), None)
    made.created = AT_S
    for key, value in extra.items():
        setattr(made, key, value)
    return made


DROPPED = record(event="query.dropped", fields={"node": "egress-0", "query": "q-1", "epoch": 3})


@pytest.fixture
def logging_as_found() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("headrace")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:], level, our_level = before
    root.setLevel(level)
    ours.setLevel(our_level)


def test_text_log_line_has_time_level_source_and_message() -> None:
    line = FORMATTERS["human"]().format
    assert line(DROPPED) == "2026-05-28 20:26:40.123 WARNING egress-0: it is done"
    assert line(record("headrace.broker")).endswith(" WARNING broker: it is done")
    assert line(record("aiokafka.conn", "two\nlines")).endswith(" WARNING aiokafka.conn: two lines")


def test_what_a_producer_wrote_does_not_steer_the_terminal() -> None:
    told = record(text="query \x1b[2J\x9b31m is \u00e9", fields={"trace": "at\x1b]0;x\x07\n  line"})
    line = FORMATTERS["human"]().format(told)
    assert line.endswith("query \\x1b[2J\\x9b31m is \u00e9\nat\\x1b]0;x\\x07\n  line")


def test_a_line_of_json_has_the_fields_beside_the_sentence() -> None:
    line = FORMATTERS["json"]().format
    assert json.loads(line(DROPPED)) == {
        "time": "2026-05-28T20:26:40.123Z", "level": "warning", "event": "query.dropped",
        "message": "it is done", "node": "egress-0", "query": "q-1", "epoch": 3,
    }  # fmt: skip
    assert json.loads(line(record("aiokafka.conn", "two\nlines"))) == {
        "time": "2026-05-28T20:26:40.123Z", "level": "warning", "event": "log",
        "message": "two\nlines", "logger": "aiokafka.conn",
    }  # fmt: skip


def test_an_exception_stays_on_its_line_in_json() -> None:
    made = record()
    try:
        raise ValueError("x")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = FORMATTERS["json"]().format(made)
    assert "\n" not in line
    assert "ValueError: x" in json.loads(line)["traceback"]


def test_repeated_library_lines_are_suppressed_and_headrace_lines_are_not() -> None:
    passes = Seldom().filter
    later = record("aiokafka.conn")
    later.created += REPEAT_S
    assert [passes(record("aiokafka.conn")) for _ in range(3)] == [True, False, False]
    assert passes(later)
    assert [passes(record("headrace.node")) for _ in range(3)] == [True, True, True]


def test_after_the_clock_is_set_back_a_librarys_lines_are_logged_and_forgotten() -> None:
    """For an hour after a step of an hour, a message that had been logged was not."""
    seldom = Seldom()
    for at_s in (5000.0, 1400.0):
        made = record("library", created=at_s)
        assert [seldom.filter(made) for _ in range(2)] == [True, False]
    assert seldom.filter(record("library", created=1420.0, msg="another", args=()))
    assert len(seldom._last) == 1


def test_messages_that_are_new_each_time_are_forgotten_once_they_may_be_repeated() -> None:
    seldom = Seldom()
    for number in range(1000):
        made = record("library", created=1000.0 + number, msg=f"took {number} ms", args=())
        assert seldom.filter(made)
    assert len(seldom._last) == REPEAT_S


def test_last_line_explains_the_end_unless_it_is_routine() -> None:
    bad = record(text="it cannot be done")
    bad.levelname = "ERROR"
    assert log_text(FORMATTERS["json"]().format(bad)) == "it cannot be done"
    assert log_text(FORMATTERS["human"]().format(bad)).endswith(" ERROR   node: it cannot be done")
    assert [log_text(FORMATTERS[form]().format(DROPPED)) for form in FORMATTERS] == ["", ""]
    assert log_text("headrace: no broker") == "headrace: no broker"
    assert log_text('{"no": "line of ours"}') == '{"no": "line of ours"}'
    assert log_text("{broken") == "{broken"


def test_lines_go_to_stderr_from_the_level_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, logging_as_found: None
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    configure("json", "info")
    ours = logging.getLogger("headrace.node")
    tell(ours, logging.DEBUG, "query.read", "nobody sees it")
    tell(ours, logging.INFO, "load.began", "loading v", variant="v")
    logging.getLogger("faust").info("nor this")
    [line] = stderr.getvalue().splitlines()
    assert {key: json.loads(line)[key] for key in ("level", "event", "variant")} == {
        "level": "info", "event": "load.began", "variant": "v",
    }  # fmt: skip


@click.command()
@role_options
@click.option("--raises", default="")
def a_role(raises: str, logs: LogOptions) -> None:
    if raises:
        raise BrokerError(raises) if raises != "unexpected" else ZeroDivisionError()
    click.echo(repr(logs))


def test_options_and_environment_set_log_level_and_format(
    monkeypatch: pytest.MonkeyPatch, logging_as_found: None
) -> None:
    for variable in (FORMAT_VARIABLE, LEVEL_VARIABLE, METRICS_VARIABLE, METRICS_HOST_VARIABLE):
        monkeypatch.setenv(variable, "")  # so that the command's settings are undone
    run = CliRunner().invoke
    assert run(a_role).stdout == f"{LogOptions()!r}\n"
    given = [
        "--log-format", "json", "--log-level", "debug", "--metrics-port", "9400",
        "--metrics-host", "0.0.0.0",
    ]  # fmt: skip
    wanted = LogOptions(
        log_format="json", log_level="debug", metrics_port=9400, metrics_host="0.0.0.0"
    )
    assert run(a_role, given).stdout == f"{wanted!r}\n"
    # Processes that it starts inherit the settings from their environment.
    assert run(a_role).stdout == f"{wanted!r}\n"


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [("no broker answers", 4, "no broker answers"), ("unexpected", 1, "ZeroDivisionError")],
)
def test_the_end_of_a_role_is_a_line_of_json_too(
    monkeypatch: pytest.MonkeyPatch, logging_as_found: None, raised: str, code: int, message: str
) -> None:
    monkeypatch.setenv("HEADRACE_LOG_FORMAT", "json")
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "info")
    found = CliRunner().invoke(a_role, ["--raises", raised])
    line = json.loads(found.stderr)
    assert (found.exit_code, line["event"], line["message"]) == (code, "role.failed", message)
    assert ("traceback" in line) == (raised == "unexpected")


def test_a_share_without_partitions_is_told(caplog: pytest.LogCaptureFixture) -> None:
    tell_idle("ingress-3", "p", "p.queries", Share(3, 5), 4)
    assert caplog.messages == []
    tell_idle("ingress-4", "p", "p.queries", Share(4, 5), 4)
    assert caplog.messages == [
        "ingress-4 has nothing to read: topic p.queries has 4 partitions, and --share 4/5 has none "
        "of them; run 4 processes at most, each with --share INDEX/4, or add partitions"
    ]
