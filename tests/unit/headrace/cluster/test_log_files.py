"""Logs of a run: the previous log is kept, sizes are bounded, and all roles are read as one log."""

from pathlib import Path

import pytest

from headrace.cli.main import run
from headrace.cluster.log_files import Filter, Follower, keep_last, log_entries, rotate
from headrace.processes import run_directory

CPU = """\
2026-11-22 10:00:01.000 INFO    cpu-0: loaded read/v in 0.1 s
2026-11-22 10:00:03.000 WARNING cpu-0: read/v raised ValueError: no
  ops.py:3 in predict: return 1 / 0
"""
EGRESS = """\
{"time": "2026-11-22T10:00:02.000Z", "level": "info", "event": "x", "message": "m"}
{"time": "2026-11-22T10:00:04.000Z", "level": "error", "event": "x", "message": "n"}
"""


def written(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cpu-0.log").write_text(CPU)
    (directory / "egress-0.log").write_text(EGRESS)
    return directory


def seconds(directory: Path, wanted: Filter = Filter()) -> list[str]:  # noqa: B008 - frozen
    return [entry.time[-6:-4] for entry in log_entries(directory, wanted)]


def test_logs_of_all_roles_are_one_by_time_with_the_lines_that_belong_to_each(
    tmp_path: Path,
) -> None:
    written(tmp_path)
    assert seconds(tmp_path) == ["01", "02", "03", "04"]
    (_, _, third, _) = log_entries(tmp_path, Filter())
    assert third.text.endswith("\n  ops.py:3 in predict: return 1 / 0")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(roles=("egress-0",)), ["02", "04"]),
        (Filter(level="warning"), ["03", "04"]),
        (Filter(pattern="ops.py|loaded"), ["01", "03"]),
    ],
)
def test_entries_are_filtered(tmp_path: Path, wanted: Filter, found: list[str]) -> None:
    assert seconds(written(tmp_path), wanted) == found


def test_the_log_of_the_last_run_is_kept_and_read(tmp_path: Path) -> None:
    log = written(tmp_path) / "cpu-0.log"
    keep_last(log)
    log.write_text("2026-11-22 10:00:05.000 INFO    cpu-0: again\n")
    assert seconds(tmp_path, Filter(roles=("cpu-0",))) == ["01", "03", "05"]


def test_a_log_that_grows_too_large_is_emptied_under_its_writer(tmp_path: Path) -> None:
    log = tmp_path / "cpu-0.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(CPU.encode())
        assert not rotate(log, len(CPU))
        assert rotate(log, len(CPU) - 1)
        writer.write(b"2026-11-22 10:00:06.000 INFO    cpu-0: more\n")
    assert log.read_text().startswith("2026-11-22 10:00:06")
    assert seconds(tmp_path) == ["01", "03", "06"]


def test_a_follower_takes_what_is_added_also_after_a_rotation(tmp_path: Path) -> None:
    log = written(tmp_path) / "cpu-0.log"
    following = Follower(tmp_path)
    assert following.take(Filter()) == []
    with log.open("ab") as writer:
        writer.write(b"2026-11-22 10:00:05.000 INFO    cpu-0: whole\n2026-11-22 10:00:06")
    assert [entry.time[-6:-4] for entry in following.take(Filter())] == ["05"]
    rotate(log, 0)
    with log.open("ab") as writer:
        writer.write(b"2026-11-22 10:00:07.000 INFO    cpu-0: new\n")
    assert [entry.time[-6:-4] for entry in following.take(Filter())] == ["07"]


FILE = """
name: talk
slo: 1s
tasks: {t: {variants: {v: {operator: 'm:C'}}}}
cluster: {devices: {cpu: 1}}
"""


def test_the_command_shows_the_last_lines_and_refuses_an_unknown_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE)
    assert run(["logs", str(file)]) == 1
    assert "there are no logs in" in capsys.readouterr().err
    written(run_directory("talk"))
    assert run(["logs", str(file), "--last", "1"]) == 0
    assert capsys.readouterr().out.startswith('egress-0 | {"time": "2026-11-22T10:00:04')
    assert run(["logs", str(file), "--role", "gpu"]) == 2
    assert "no role 'gpu' has a log; there are cpu-0, egress-0" in capsys.readouterr().err
