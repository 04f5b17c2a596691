"""A search uses real profilers: several share a configuration, and a kill loses no finished
block."""

import json
import os
import signal
from pathlib import Path

import pytest

from benchmarks.knob_operators import a_workload, an_operator
from headrace.cli.main import run
from headrace.cluster.supervisor import running_profilers
from headrace.config.pipeline_file import read_pipeline_file, search_space
from headrace.planning.live_profiles import LiveProfiles
from headrace.planning.profiler_pings import await_profilers
from headrace.planning.session_search import Asked, searched
from headrace.processes import run_directory
from schemas.codec.single_object import decode
from schemas.effects import PROFILE_RESULTS
from schemas.records import ProfileResult
from streams.kafka.admin.preflight import prepare
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import read_to_end
from streams.topics import physical

pytestmark = pytest.mark.kafka

# A word takes longer at the full scale, so that one plan is the cheapest on every machine.
MODULE = (
    "import time\n"
    + an_operator(
        "Scan",
        "scale",
        "[time.sleep(0.002 * self._scale) or value[: int(len(value) * self._scale)]]",
    )
    + an_operator("Read", "sure", 'value[0] if self._sure or len(value) % 3 else "?"')
    + a_workload(
        "Words",
        """
        while True:
            word = "".join(rng.choice(list("abc"), int(rng.integers(4, 30))))
            yield word, word[0]
        """,
    )
)
YAML = """\
name: words-{number}
slo: {{latency: 150ms, accuracy: 0.9}}
input: raw
results: json
workload: planned_words:Words
policy: compass
policies:
  compass: {{kind: compass, deadline: 120s, spend: 0, samples: {{least: 50, most: 100}}}}
tasks:
  scan:
    children: [read]
    knobs: {{scale: [1, 0.5]}}
    variants: {{scan: {{operator: "planned_words:Scan", arguments: {{scale: $scale}}}}}}
  read:
    knobs: {{sure: [false, true]}}
    variants: {{read: {{operator: "planned_words:Read", arguments: {{sure: $sure}}}}}}
cluster:
  profilers: 2
  tiers:
    handheld: {{speed: 0.5, per: session}}
    cloud: {{speed: 1, count: 2, price: 0.2}}
  links:
    handheld>cloud: {{rate: 8Mbps, delay: 10ms}}
"""


def a_file(folder: Path, number: int) -> Path:
    (folder / "planned_words.py").write_text(MODULE)
    path = folder / "planned.yaml"
    path.write_text(YAML.format(number=f"{os.getpid()}-{number}"))
    return path


def test_a_search_runs_configurations_once_and_repeats_from_the_topic(
    broker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_file(tmp_path, 1)

    def found(*more: str) -> dict[str, object]:
        assert run(["search", str(file), "--bootstrap", broker, "--json", *more]) == 0
        return dict(json.loads(capsys.readouterr().out))

    first = found()
    assert first["stopped"] == "space"
    plans = first["plans"]
    assert isinstance(plans, list)
    assert all(plan["configuration"]["read.sure"] == "true" for plan in plans)
    again = found("--profilers", "1")
    assert [plan["configuration"] for plan in again["plans"]] == [  # type: ignore[attr-defined]
        plan["configuration"] for plan in plans
    ]
    assert again["spent"] == {"device_seconds": 0.0, "usd": 0.0}


def test_the_speed_of_a_tier_is_that_of_the_profilers_that_run(
    broker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``tier-speed`` starts no profiler: it measures against those of the pipeline."""
    path = a_file(tmp_path, 3)
    path.write_text(path.read_text().replace(" cloud: {", " cloud: {device: cpu, "))
    file = read_pipeline_file(path)
    prepare(KafkaConfig(broker), file.pipeline, "profiler")
    with running_profilers(file, broker, 1, print):
        asked = ["tier-speed", str(path), "cloud", "--bootstrap", broker, "--json"]
        assert run(asked) == 0
    found = json.loads(capsys.readouterr().out)
    settings = [each["setting"] for each in found["operators"]]
    assert settings == ["scan/scan@scale=1", "read/read@sure=false"]
    assert (found["device"], found["samples"], found["cpu_speed"]) == ("cpu", 50, None)
    times = [(each["profiled_ms"], each["here_ms"]) for each in found["operators"]]
    assert found["speed"] == pytest.approx(sum(t[0] for t in times) / sum(t[1] for t in times))


def test_killed_profilers_lose_no_finished_block(broker: str, tmp_path: Path) -> None:
    file = read_pipeline_file(a_file(tmp_path, 2))
    kafka, killed = KafkaConfig(broker), list[int]()
    prepare(kafka, file.pipeline, "profiler")
    results = physical(file.pipeline.name, PROFILE_RESULTS)

    def records() -> list[ProfileResult]:
        found = [decode(message.value()) for message in read_to_end(kafka, results)]
        return [each for each in found if isinstance(each, ProfileResult) and each.scores]

    with running_profilers(file, broker, 2, print) as (tend, running):

        def tend_and_kill() -> None:
            tend()
            alive = running()
            if len(killed) < 2 and alive and len(records()) > 3 * len(killed):
                os.kill(alive[-1].pid, signal.SIGKILL)
                killed.append(alive[-1].pid)

        with LiveProfiles(
            kafka, file.pipeline, search_space(file), "workload@0", "s", tend=tend_and_kill
        ) as source:
            await_profilers(kafka, file.pipeline.name, search_space(file), 120.0, tend)
            found = searched(file, source, Asked(deadline_s=120.0))
    assert len(killed) == 2
    assert found.search.plans
    by_block: dict[tuple[str, int], set[float]] = {}
    for each in records():
        by_block.setdefault((str(sorted(each.options.items())), each.first), set()).add(
            each.finished_s
        )
    # A finished block may be written again, but never runs again.
    assert all(len(times) == 1 for times in by_block.values()), run_directory(file.pipeline.name)
