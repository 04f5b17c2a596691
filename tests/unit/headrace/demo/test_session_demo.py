"""The session demo: its environment and options, and its error for a pipeline that has ended."""

from pathlib import Path

import pytest

from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file
from headrace.demo.demo_run import shipped_pipeline
from headrace.demo.session_demo import SessionDemo
from headrace.errors import Unsuccessful
from headrace.processes import run_directory


def test_command_error_after_up_ended_names_up_and_not_the_broker(
    tmp_path: Path,
) -> None:
    file = read_pipeline_file(shipped_pipeline().with_name("sessions.yaml"))
    demo = SessionDemo(file, tmp_path, 1.0, lambda text: None)
    directory = run_directory(file.pipeline.name, demo.environment)
    directory.mkdir(parents=True)
    (directory / "up.log").write_text("headrace: control cannot run: KeyError: 'x'\n")
    with pytest.raises(
        Unsuccessful, match=r"`headrace up` has ended: .*control cannot run"
    ) as told:
        demo.sessions()
    assert "broker" not in str(told.value)


def test_the_demo_runs_on_its_own_broker_whatever_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to make its topics and sessions on the broker of HEADRACE_BOOTSTRAP."""
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "production:9092")
    monkeypatch.setenv("HEADRACE_KAFKA_CONFIG", "production.properties")
    monkeypatch.setenv("HEADRACE_METRICS_HOST", "0.0.0.0")
    file = read_pipeline_file(shipped_pipeline().with_name("sessions.yaml"))
    found = SessionDemo(file, tmp_path, 1.0, lambda text: None).environment
    assert not {"HEADRACE_BOOTSTRAP", "HEADRACE_KAFKA_CONFIG"} & found.keys()
    assert (found["HEADRACE_HOME"], found["HEADRACE_METRICS_HOST"]) == (str(tmp_path), "0.0.0.0")


@pytest.mark.parametrize(
    "option", [("--bootstrap", "x:9092"), ("--rate", "5"), ("--seed", "1"), ("--compare",)]
)
def test_options_without_an_effect_are_refused(
    option: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--sessions", *option]) == 2
    assert f"{option[0]} has no effect with --sessions" in capsys.readouterr().err
