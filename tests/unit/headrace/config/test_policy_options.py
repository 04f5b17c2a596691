"""headrace/config/policy_options.py: policies named on a command line."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster
from control.policies import POLICIES, policy_named
from control.policies.option_fields import LONGEST_RUN, with_options
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.policy_options import policy_asked, with_policies
from headrace.config.policy_sections import section_of, single_valued
from headrace.errors import PipelineError


@pytest.fixture
def file(tmp_path: Path) -> PipelineFile:
    return read_pipeline_file(a_cluster(tmp_path))


def test_a_name_is_the_policy_of_that_name(file: PipelineFile) -> None:
    assert policy_asked(file, "loki-paper") == POLICIES["loki-paper"].usual
    assert policy_asked(file, "fast") == policy_named(file.pipeline, "fast")


def test_options_follow_the_name_and_the_policy_is_called_by_all_of_it(file: PipelineFile) -> None:
    text = "loki:headroom=1.2:interval=5s:dropping=none:nodes=10"
    assert policy_asked(file, text) == replace(
        with_options(POLICIES["loki"].usual, nodes=10),
        name=text, headroom=1.2, interval_s=5.0, dropping="none",
    )  # fmt: skip


def test_an_option_may_be_true_or_false(file: PipelineFile) -> None:
    assert policy_asked(file, "ramsis:capped=false").capped is False


def test_how_long_runs_may_be_is_an_option(file: PipelineFile) -> None:
    assert LONGEST_RUN.of(policy_asked(file, "ramsis")) == 32
    assert LONGEST_RUN.of(policy_asked(file, "ramsis:longest_run=1")) == 1


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
        ("loki:headroom=1.1:headroom=1.2", "has 'headroom' twice; remove one"),
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
    for spec in POLICIES.values():
        keys = set(section_of(spec).model_fields)
        assert keys - {"kind", "replicas", "batch", "loads", "samples", "traffic"} == set(
            single_valued(spec)
        )


def test_an_option_of_another_kind_is_none(file: PipelineFile) -> None:
    with pytest.raises(PipelineError, match="'nodes' is no option that"):
        policy_asked(file, "static:nodes=5")


@pytest.mark.parametrize("confidence", ["0.5", "1", "0", "1.5"])
def test_a_confidence_that_no_search_can_use_is_refused(
    file: PipelineFile, confidence: str
) -> None:
    """Values of 1 and of at most 0.5 were accepted, and every search failed."""
    with pytest.raises(
        PipelineError, match=f"confidence is {confidence}; it must be above 0.5 and below 1"
    ):
        policy_asked(file, f"compass:confidence={confidence}")
