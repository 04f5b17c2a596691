"""headrace/config/policy_options.py: policies as a command line names them."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster
from control.problem.problem import BUILT_IN, policy_named
from headrace.config.pipeline_file import PipelineError, PipelineFile, read_pipeline_file
from headrace.config.policy_options import OPTIONS, policy_asked, with_policies
from headrace.config.sections import PolicySection


@pytest.fixture
def file(tmp_path: Path) -> PipelineFile:
    return read_pipeline_file(a_cluster(tmp_path))


def test_a_name_is_the_policy_of_that_name(file: PipelineFile) -> None:
    assert policy_asked(file, "loki-paper") == BUILT_IN["loki-paper"]
    assert policy_asked(file, "fast") == policy_named(file.pipeline, "fast")


def test_options_follow_the_name_and_the_policy_is_called_by_all_of_it(file: PipelineFile) -> None:
    text = "loki:headroom=1.2:interval=5s:dropping=none:nodes=10"
    assert policy_asked(file, text) == replace(
        BUILT_IN["loki"], name=text, headroom=1.2, interval_s=5.0, dropping="none", nodes=10
    )


def test_an_option_may_be_true_or_false(file: PipelineFile) -> None:
    assert policy_asked(file, "ramsis:capped=false").capped is False


def test_how_long_runs_may_be_is_an_option(file: PipelineFile) -> None:
    assert policy_asked(file, "ramsis").longest_run == 32
    assert policy_asked(file, "ramsis:longest_run=1").longest_run == 1


def test_policies_with_options_join_those_of_the_file(file: PipelineFile) -> None:
    asked = ["fast", "loki", "fast:batching=patient"]
    found = with_policies(file, asked).pipeline
    assert found.policies[:-1] == file.pipeline.policies
    made = policy_named(found, "fast:batching=patient")
    assert made is not None
    assert (made.batching, made.replicas) == ("patient", {"detect/small": 1, "read/small": 1})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("best", "no policy 'best'; known are static, fast, loki"),
        ("loki:droping=none", "'droping' is no option .* did you mean 'dropping'"),
        ("loki:dropping", "'dropping' is no option|as in loki-paper:dropping=none"),
        ("loki:replicas=3", "'replicas' is no option that a policy can be given here"),
        ("loki:dropping=no", "dropping is 'no'; it can be 'none', 'deadline'"),
        ("loki:headroom=-1", "headroom is -1; it must be above 0"),
        ("loki:headroom=much", "headroom is 'much'; write a number"),
        ("loki:nodes=1.5", "nodes is 1.5; write a whole number"),
        ("loki:interval=5", "interval is 5 without a unit; write 5ms or 5s"),
    ],
)
def test_what_is_wrong_is_one_sentence(file: PipelineFile, text: str, words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        with_policies(file, [text])


def test_every_key_with_one_value_is_an_option() -> None:
    assert set(PolicySection.model_fields) - {"kind", "replicas", "batch", "loads"} == set(OPTIONS)
