"""Settings left by commands of an earlier run, as `up` reports them; what `down` ends."""

import os
from pathlib import Path

import pytest

from headrace.cluster.run_state import RunState, runs_on, write_state
from headrace.cluster.running_file import named_pipeline
from headrace.cluster.up import commanded_settings
from headrace.errors import PipelineError
from headrace.processes import Process, run_directory
from schemas.records import Settings

FILED = Settings(policy="loki", slo_s=0.3, filed_policy="loki", filed_slo_s=0.3)


def test_settings_equal_to_the_file_are_not_reported() -> None:
    assert commanded_settings(FILED) == []


def test_settings_left_by_commands_are_named_with_the_command_that_resets_them() -> None:
    settings = Settings(
        policy="fast", slo_s=0.2, demand_qps=50.0, drained=("cpu-1", "cpu-2"), paused=True,
        filed_policy="loki", filed_slo_s=0.3,
    )  # fmt: skip
    assert commanded_settings(settings) == [
        "policy fast (to reset: `headrace policy apply FILE loki`)",
        "an SLO of 200 ms (to reset: `headrace command FILE set-slo slo=300ms`)",
        "planned for 50/s (to reset: `headrace command FILE release-demand`)",
        "cpu-1, cpu-2 drained (to reset: `headrace restore FILE cpu-1`)",
        "paused (to reset: `headrace resume FILE`)",
    ]


def test_a_pipeline_whose_file_has_become_wrong_can_still_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typo in the file of a running pipeline, or a policy package that was removed."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: words\nslow: 2s\n")
    with pytest.raises(PipelineError, match="slow"):
        named_pipeline(file)
    me = Process.found("up", os.getpid())
    directory = run_directory("words")
    directory.mkdir(parents=True)
    run = RunState(pipeline="words", file=str(file), bootstrap="", supervisor=me)
    write_state(directory, run)
    assert named_pipeline(file).name == "words"
    with pytest.raises(PipelineError, match="not there"):
        named_pipeline(tmp_path / "other.yaml")


def test_the_pipelines_on_a_broker_are_known_before_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`headrace broker stop` said nothing of the pipelines that then waited for it."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    me = Process.found("up", os.getpid())
    for name, bootstrap in (("words", "127.0.0.1:1"), ("other", "kafka:9092")):
        directory = run_directory(name)
        directory.mkdir(parents=True)
        write_state(directory, RunState(
            pipeline=name, file="f", bootstrap=bootstrap, supervisor=me,
        ))  # fmt: skip
    assert runs_on("127.0.0.1:1", run_directory("any").parent) == ["words"]
