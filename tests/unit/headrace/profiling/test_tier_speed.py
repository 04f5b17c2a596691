"""The speed of a tier: operators that run here, against their profiles."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from control.policies.compass.search.configuration_run import ProfileGoal
from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file, search_space
from headrace.errors import Unsuccessful
from headrace.planning.recorded_truth import read_truth
from headrace.planning.session_search import RecordedProfiles
from headrace.profiling.tier_speed import OperatorSpeed, TierSpeed, as_text, covering, tier_speed

MODULE = "tests.unit.headrace.profiling.test_tier_speed"
YAML = f"""\
name: words
slo: {{latency: 150ms, accuracy: 0.9}}
workload: {MODULE}:Words
policy: compass
policies:
  compass: {{kind: compass}}
tasks:
  cut:
    cpu: true
    tiers: [desk]
    children: [read]
    variants:
      cut: {{operator: "{MODULE}:Read"}}
  read:
    knobs: {{upper: [false, true]}}
    variants:
      small: {{operator: "{MODULE}:Read"}}
      large: {{operator: "{MODULE}:Read"}}
cluster:
  tiers:
    desk: {{speed: 1, count: 1, per: session}}
    cloud: {{device: cpu, count: 1, price: 0.2}}
  links:
    desk>cloud: {{rate: 8Mbps, delay: 5ms}}
"""
SETTINGS = ["read/small@upper=false", "read/large@upper=false"]


class Words:
    def queries(self, rng: Any) -> Iterator[tuple[str, str]]:
        return ((f"word {n}", "") for n in range(100))

    def score(self, result: Any, truth: str) -> tuple[int, int]:
        raise AssertionError("only seconds count")

    def task_inputs(self, task: str, rng: Any) -> Iterator[str]:
        return iter(())

    def task_score(self, task: str, output: Any, truth: Any) -> tuple[int, int]:
        return 0, 1


class Read:
    fails = False

    def load(self, device: str) -> None:
        assert device == "cpu"

    def predict(self, batch: list[Any]) -> list[str]:
        if self.fails:
            raise ValueError("no licence")
        return [str(each) for each in batch]


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.yaml"
    path.write_text(YAML)
    return path


@pytest.fixture
def recorded(words: Path, tmp_path: Path) -> Path:
    space = search_space(read_pipeline_file(words)).space
    rows = [
        {
            "options": space.named(c),
            "scores": [1.0] * 60,
            "seconds": {"cut": 1.0, "read": 2.0},
        }
        for c in range(space.configuration_count)
    ]
    path = tmp_path / "truth.json"
    path.write_text(json.dumps({"pipeline": "words", "configurations": rows}))
    return path


def test_every_variant_of_the_tiers_tasks_is_measured_against_its_profile(
    words: Path, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["tier-speed", str(words), "cloud", "--recorded", str(recorded), "--json"]
    assert run(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tier"], found["device"], found["samples"]) == ("cloud", "cpu", 50)
    assert [each["setting"] for each in found["operators"]] == SETTINGS
    assert {each["profiled_ms"] for each in found["operators"]} == {2000.0}
    here_ms = sum(each["here_ms"] for each in found["operators"])
    assert found["speed"] == pytest.approx(4000.0 / here_ms)
    assert found["cpu_speed"] is None


def test_a_tier_has_one_speed_for_gpus_and_one_for_processors() -> None:
    found = TierSpeed(
        "cloud", "cuda:0", 50,
        (
            OperatorSpeed("cut/cut", True, 0.004, 0.002),
            OperatorSpeed("read/small", False, 0.001, 0.001),
            OperatorSpeed("read/large", False, 0.007, 0.015),
        ),
    )  # fmt: skip
    assert (found.speed, found.cpu_speed) == (0.5, 2.0)
    # Half of the speed is assumed for an operator that runs as fast as in its profile.
    assert [found.error(each) for each in found.operators] == pytest.approx([0.0, 1.0, -1 / 15])
    assert as_text(found).endswith("write under cluster.tiers.cloud: speed: 0.5, cpu_speed: 2")


def test_configurations_cover_every_variant(words: Path) -> None:
    sessions = search_space(read_pipeline_file(words))
    covered = [sessions.setting("read", c) for c in covering(sessions.space)]
    assert covered == SETTINGS


@pytest.mark.parametrize(
    ("tier", "sentence"),
    [
        ("moon", "has no tier 'moon'; tiers are desk, cloud"),
        ("desk", "the tier 'desk' is emulated, so its speed is what the file says"),
    ],
)
def test_a_tier_without_a_real_device_is_refused(
    words: Path, recorded: Path, capsys: pytest.CaptureFixture[str], tier: str, sentence: str
) -> None:
    assert run(["tier-speed", str(words), tier, "--recorded", str(recorded)]) == 2
    assert sentence in capsys.readouterr().err


def test_an_operator_that_fails_here_is_named_with_its_error(
    words: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Read, "fails", True)
    file = read_pipeline_file(words)
    space = search_space(file).space
    profiles = RecordedProfiles(space, read_truth(recorded, space))
    with pytest.raises(Unsuccessful, match=r"cut/cut fails here: .*no licence"):
        tier_speed(file, "cloud", profiles, "workload@0", 50)


class Silent(RecordedProfiles):
    """Profilers that do not answer."""

    def profile(self, proposal: Any, goal: ProfileGoal, until_s: float) -> Any:
        return None


def test_profilers_that_do_not_answer_end_the_measurement(words: Path, recorded: Path) -> None:
    file = read_pipeline_file(words)
    space = search_space(file).space
    with pytest.raises(Unsuccessful, match="no profiler has answered within 600 s"):
        tier_speed(file, "cloud", Silent(space, read_truth(recorded, space)), "workload@0", 50)


def test_a_profile_without_a_right_answer_is_none(words: Path, recorded: Path) -> None:
    document = json.loads(recorded.read_text())
    for row in document["configurations"]:
        row["scores"] = [0.0] * 60
    recorded.write_text(json.dumps(document))
    file = read_pipeline_file(words)
    space = search_space(file).space
    profiles = RecordedProfiles(space, read_truth(recorded, space))
    with pytest.raises(Unsuccessful, match="has no right answer in its profile"):
        tier_speed(file, "cloud", profiles, "workload@0", 50)
