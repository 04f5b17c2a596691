"""The command line: exit codes, one-sentence errors, and only JSON on stdout."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from msgspec import structs

from headrace.broker import connect
from headrace.cli import main as cli
from headrace.cli.main import run
from headrace.client.ask import answer_json, answer_text
from headrace.client.formats import read_answer
from headrace.client.give_command import plain_table
from headrace.errors import Unfeasible, Unsuccessful
from headrace.processes import HEADRACE, environment
from headrace.results.tally import latency_ms
from headrace.terminal import counting_line, print_rich, progress_line
from schemas.codec.json_form import answer_to_json
from schemas.codec.single_object import CodecError, encode
from schemas.records import Answer, Command, End, Hop, Origin

WORDS = Path(__file__).parents[3] / "pipelines" / "lines" / "pipeline.yaml"
NOWHERE = "127.0.0.1:1"


def test_a_right_file_is_described_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(WORDS), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "valid": True, "pipeline": "lines", "slo_ms": 2000.0,
        "tasks": {"split": ["spaces"], "shout": ["careful", "hasty"]}, "policy": "accurate",
        "policies": ["static", "accurate", "fast"], "devices": {"cpu": 2}, "share": 1.0,
        "tasks_per_device": 1, "profiled": [], "infeasible": {}, "warnings": [],
    }  # fmt: skip
    assert captured.err == ""


BAD_INPUT = [
    (["validate", "gone.yaml"], "gone.yaml is not there; name an existing pipeline file"),
    (["vaildate", "x"], "No such command 'vaildate'; did you mean 'validate'? See `"),
    (
        ["session", "lst"],
        "No such command 'lst'; did you mean 'list'? See `headrace session --help`",
    ),
    (["validate", str(WORDS.parent)], "lines is a folder; name the pipeline file in it"),
    (["load", str(WORDS), "--rate", "5"], "give --rate and --seconds, or --phases, or --arrivals"),
    (["load", str(WORDS), "--rate", "0", "--seconds", "1"], "0.0 is not in the range x>0"),
    (["load", str(WORDS), "--rate", "5", "--arrivals", "a"], "leave the others out"),
    (["load", str(WORDS), "--rate", "5", "--phases", "a=1s@5"], "leave the others out"),
    (["load", str(WORDS), "--phases", "a=1s"], "'a=1s' is no phase; write NAME=LENGTH@RATE"),
    (["simulate", str(WORDS), "--arrivals", "a", "--phases", "a=1s@5"], "leave --arrivals out"),
    (["ingress", str(WORDS), "--share", "2/2"], "'2/2' is no share; write INDEX/OF"),
    (
        ["ingress", str(WORDS), "--share", "1/2"],
        "cluster.ingress is 1: shares of both numbers over",
    ),
    (
        ["egress", str(WORDS), "--share", "0/3"],
        "give --share INDEX/1, or change cluster.egress and",
    ),
    (["dispatcher", str(WORDS), "--task", "shout", "--share", "1/2"], "cluster.dispatchers is 1"),
    (["command", str(WORDS), "apply-policy", "fast"], "'fast' is no argument; write KEY=VALUE"),
    (
        ["command", str(WORDS), "set-slo", "slo=1s", "slo=2s"],
        "an argument is given twice; give each KEY=VALUE once",
    ),
    (["send", str(WORDS), "-", "--deadline", "300"], "without a unit; write 300ms or 300s"),
    (["send", str(WORDS)], "Missing argument 'INPUT'; see `headrace send --help`"),
    (["profile", str(WORDS), "--batches", "one"], "'one' is no list of batch sizes"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD_INPUT)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", NOWHERE)
    monkeypatch.setattr(connect, "reached", lambda _: pytest.fail("no broker was needed"))
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("headrace: ")
    assert sentence in line


@pytest.mark.parametrize("command", ["status", "replan"])
def test_no_broker_is_one_sentence_and_exit_code_4(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "ANSWERS_WITHIN_S", 0.2)
    assert run([command, str(WORDS), "--bootstrap", NOWHERE]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"headrace: no Kafka broker answers at {NOWHERE}")
    assert "--bootstrap" in line


@pytest.mark.parametrize(
    ("error", "code"),
    [(Unsuccessful("not done"), 1), (Unfeasible("too few workers"), 3), (click.Abort(), 130)],
)
def test_every_kind_of_end_has_its_exit_code(
    error: Exception,
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @click.command()
    def fails() -> None:
        raise error

    monkeypatch.setitem(cli.headrace.commands, "fails", fails)
    assert run(["fails"]) == code
    assert capsys.readouterr().err.splitlines() == [
        "interrupted" if code == 130 else f"headrace: {error}"
    ]


@pytest.mark.parametrize(("path", "where"), [(None, "the output"), ("/d/page", "/d/page")])
def test_a_full_disk_is_one_sentence(
    path: str | None,
    where: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @click.command()
    def fails() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setitem(cli.headrace.commands, "fails", fails)
    assert run(["fails"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"headrace: {where} cannot be written: No space left on device; make")


def test_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fails() -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(cli.headrace.commands, "fails", fails)
    with pytest.raises(ZeroDivisionError):
        run(["fails"])


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def waits() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.headrace.commands, "waits", waits)
    assert run(["waits"]) == 130


def test_a_policy_that_asks_for_too_much_is_infeasible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = WORDS.read_text().replace("devices: {cpu: 2}", "devices: {cpu: 1}")
    greedy = tmp_path / "greedy.yaml"
    greedy.write_text(text)
    (tmp_path / "words_operators.py").write_text((WORDS.parent / "words_operators.py").read_text())
    code = run(["validate", str(greedy)])
    captured = capsys.readouterr()
    assert code in (2, 3)  # the file's own checks may refuse it first
    assert "2" in captured.out + captured.err


def test_selection_policy_on_an_unsupported_pipeline_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "selects.yaml"
    file.write_text(WORDS.read_text().replace("policy: accurate", "policy: ramsis"))
    (tmp_path / "words_operators.py").write_text((WORDS.parent / "words_operators.py").read_text())
    assert run(["validate", str(file)]) == 2
    assert "policy 'ramsis'" in capsys.readouterr().err


HELP_NEEDS_NOT = ("torch", "faust", "confluent_kafka", "pydantic", "numpy", "rich", "yaml")


def test_help_loads_nothing_heavy() -> None:
    code = f"import sys, headrace.cli.main as c; c.run(['--help']); print(*set({HELP_NEEDS_NOT}) & set(sys.modules), file=sys.stderr)"  # noqa: E501
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment({}, None)
    )
    assert found.stderr == b"\n"


# ------------------------------------------------------------------ answers

HOP = Hop(
    task="shout", variant="careful", worker="cpu-1", epoch=3, received_s=10.1, started_s=10.11,
    finished_s=10.12, batch=2,
)  # fmt: skip
ANSWER = Answer(
    id="q", origin=Origin(1, 2), outcome="answered", result=["A", 1], created_s=10.0,
    deadline_s=11.0, answered_s=10.125, epoch=3, paths=((HOP,),), ends=(End("answered", "shout"),),
)  # fmt: skip


@pytest.mark.parametrize("written", [answer_to_json, encode])
def test_answers_are_read_in_either_form(written: object) -> None:
    assert callable(written)
    assert read_answer(written(ANSWER)) == ANSWER


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"{}", b'{"id": "q"}', b"plain", encode(Command(id="c", pipeline="", action="x"))],
)
def test_invalid_answer_is_reported(value: bytes) -> None:
    with pytest.raises(CodecError):
        read_answer(value)


def test_answer_is_printed_in_two_lines() -> None:
    assert answer_text(ANSWER) == '["A", 1]\nanswered (125.0 ms, plan 3, shout/careful)'


def test_a_reason_with_line_breaks_stays_in_its_line() -> None:
    failed = structs.replace(ANSWER, outcome="failed", reason="boom\nanswered (1.0 ms, plan 3)")
    (line,) = answer_text(failed).splitlines()
    assert line.startswith("failed: boom answered (1.0 ms, plan 3) (125.0 ms")


def test_a_result_without_a_part_is_not_told_as_a_drop_alone() -> None:
    """The line began with "dropped at classify: ... raised ValueError", below a result."""
    reason = "classify/net raised ValueError: no"
    partial = structs.replace(ANSWER, incomplete=True, task="classify", reason=reason)
    (_, line) = answer_text(partial).splitlines()
    assert line.startswith(f"dropped, answered with a part missing at classify: {reason} (125.0 ms")


def test_an_answer_as_json_has_its_latency() -> None:
    assert answer_json(ANSWER)["latency_ms"] == latency_ms(ANSWER) == 125.0


def test_progress_has_the_time_left_once_it_can_be_told() -> None:
    assert progress_line("sending", 0, 10, 1.0, "") == "sending: 0 of 10"
    assert progress_line("sending", 5, 10, 3.0, "4 answers") == (
        "sending: 5 of 10, about 3 s left, 4 answers"
    )
    assert progress_line("sending", 10, 10, 3.0, "") == "sending: 10 of 10"


def test_steps_of_unknown_length_have_no_time_left() -> None:
    assert counting_line("starting p", 1, 4, 12.3, "loading: cpu-0") == (
        "starting p: 1 of 4, 12 s, loading: cpu-0"
    )


def test_task_tree_is_printed_as_a_tree() -> None:
    def hop(task: str) -> Hop:
        return Hop(
            task=task, variant="v", worker="w", epoch=3, received_s=1.0, started_s=1.0,
            finished_s=1.1, batch=1,
        )  # fmt: skip

    paths = tuple((hop("split"), hop(leaf)) for leaf in ("sentiment", "topic", "sentiment"))
    told = answer_text(structs.replace(ANSWER, paths=paths))
    assert told.endswith("plan 3, split/v -> (sentiment/v, topic/v))")


def test_help_lists_every_command_in_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line in ("Steer:", "Use:")] == ["Use:", "Steer:"]
    assert "More:" not in text


def test_tables_have_no_padding_blanks_where_output_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_rich(plain_table(("a", "b"), [("x", "y"), ("long cell", "z")]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines == [line.rstrip() for line in lines]


OPERATOR = "class Shout:\n    def load(self, device): ...\n    def predict(self, batch): ...\n"
SHOUT = """\
name: shout
slo: 1s
tasks:
  shout:
    variants:
      plain: {operator: "operators:Shout"}
cluster:
  devices: {cpu: 1}
"""


@pytest.mark.thorough
@pytest.mark.parametrize("start", [("-m", "headrace"), HEADRACE[1:]], ids=["user", "role"])
def test_modules_in_the_working_directory_hide_none_of_ours(
    tmp_path: Path, start: tuple[str, ...]
) -> None:
    for name in ("control", "operators", "profiles", "schemas", "streams"):
        (tmp_path / f"{name}.py").write_text(OPERATOR)
    (tmp_path / "pipeline.yaml").write_text(SHOUT)
    found = subprocess.run(
        [sys.executable, *start, "validate", "pipeline.yaml"],
        capture_output=True, env=environment({}, None), cwd=tmp_path,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr.decode()
