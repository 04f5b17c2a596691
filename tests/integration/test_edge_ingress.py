"""An ingress at the edge uses two real brokers: one for its inputs, one for the pipeline."""

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from benchmarks.knob_operators import an_operator
from headrace.broker import local_broker as local
from headrace.cli.main import run
from headrace.client.formats import answer_reader, answers_in
from headrace.client.topic_clients import Asker, Tail
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from schemas.effects import QUERIES, RESULTS, work_topic
from schemas.records import Answer, Query
from streams.kafka.edge_transport import first_partition
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import read_to_end
from streams.topics import physical

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

WITHIN_S = 90.0
MODULE = (
    "import os\n"
    + an_operator("Scan", "scale", '[os._exit(3) if value == b"die" else value.decode()[:1]]')
    + an_operator("Read", "votes", 'value + f"x{self._votes}"')
)
YAML = """\
name: edge-{number}
slo: {{latency: 30s, accuracy: 0.9}}
input: raw
results: json
policy: compass
policies:
  compass: {{kind: compass}}
tasks:
  scan:
    children: [read]
    tiers: [handheld]
    knobs: {{scale: [1, 0.5]}}
    variants: {{scan: {{operator: "edge_words:Scan", arguments: {{scale: $scale}}}}}}
  read:
    tiers: [cloud]
    knobs: {{votes: [1, 3]}}
    variants: {{read: {{operator: "edge_words:Read", arguments: {{votes: $votes}}}}}}
cluster:
  tiers:
    handheld: {{speed: 0.5, per: session, count: 1}}
    cloud: {{speed: 1, count: 1, price: 0.2}}
  links:
    handheld>cloud: {{rate: 8Mbps, delay: 10ms}}
"""


class Edge:
    """Run the process of an ingress at the edge, and restart it whenever it ends."""

    def __init__(self, file: PipelineFile, central: str, site: str) -> None:
        self.file, self.central, self.site = file, KafkaConfig(central), KafkaConfig(site)
        self._command = [
            sys.executable, "-m", "headrace", "ingress", str(file.path), "--bootstrap", central,
            "--tier", "handheld", "--session", "cam", "--input", site, "--site", "1",
        ]  # fmt: skip
        self.starts = 0
        self._start()

    def _start(self) -> None:
        self.starts += 1
        self._process = subprocess.Popen(self._command)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30.0)
        self._process.kill()

    def answers(self, payloads: list[bytes], *, killed: bool = False) -> list[Answer]:
        """Write inputs to the edge's broker; return their answers from the central broker."""
        pipeline, found = self.file.pipeline, []
        names = {uuid.uuid4().hex for _ in payloads}
        with (
            closing(Tail(self.central, physical(pipeline.name, RESULTS))) as tail,
            Asker(self.site, pipeline) as asker,
        ):
            for name, payload in zip(sorted(names), payloads, strict=True):
                asker.ask(Query(payload=payload, id=name, session="cam"))
            if killed:
                self.kill()
            until = time.monotonic() + WITHIN_S
            while len(found) < len(names) and time.monotonic() < until:
                if not self.runs:
                    self._start()
                answers = answers_in(tail.take(0.1), answer_reader(pipeline))
                found += [each for each in answers if each.id in names]
            found += [
                a for a in answers_in(tail.take(1.0), answer_reader(pipeline)) if a.id in names
            ]
        assert sorted(each.id for each in found) == sorted(names)
        return found

    def records(self, topic: str) -> int:
        return len(read_to_end(self.central, physical(self.file.pipeline.name, topic)))


def served_again(edge: Edge) -> None:
    """Send queries until the session is served at its edge."""
    until = time.monotonic() + WITHIN_S
    while True:
        (answer,) = edge.answers([b"abc"])
        if answer.outcome == "answered":
            assert [path[0].worker for path in answer.paths] == ["handheld:cam-scan"]
            return
        assert time.monotonic() < until, answer.reason


def headrace(*arguments: str) -> int:
    return run([*arguments])


@pytest.fixture
def edge(broker: str, tmp_path: Path) -> Iterator[Edge]:
    (tmp_path / "edge_words.py").write_text(MODULE)
    path = tmp_path / "planned.yaml"
    path.write_text(YAML.format(number=uuid.uuid4().hex[:8]))
    up = [sys.executable, "-m", "headrace", "up", str(path), "--bootstrap", broker, "--detach"]
    with local.borrow(tmp_path / "site") as site:
        try:
            subprocess.run(up, check=True, timeout=120)
            made = Edge(read_pipeline_file(path), broker, site.bootstrap)
            try:
                yield made
            finally:
                made.end()
        finally:
            down = [sys.executable, "-m", "headrace", "down", str(path)]
            subprocess.run(down, check=False, timeout=60)


def opened(edge: Edge, folder: Path) -> None:
    """Open the session once its device reports; another session has the only other device."""
    plan, path = folder / "plan.json", str(edge.file.path)
    stages, config = [["scan", "handheld"], ["read", "cloud"]], {"scan.scale": 1, "read.votes": 1}
    plan.write_text(json.dumps({"stages": stages, "config": config, "shares": {"read": 0.5}}))
    await_reports(edge)
    for name in ("other", "cam"):
        asked = [path, name, "--plan", str(plan), "--wait", "60s"]
        assert headrace("session", "open", *asked, "--bootstrap", edge.central.bootstrap) == 0


def await_reports(edge: Edge) -> None:
    """Wait until the edge's device reports."""
    until = time.monotonic() + WITHIN_S
    with closing(Tail(edge.central, physical(edge.file.pipeline.name, "reports"))) as tail:
        while not any(b"handheld:cam-scan" in value for value in tail.take(0.2)):
            assert edge.runs
            assert time.monotonic() < until, "the edge does not report"


def test_inputs_stay_at_the_edge_through_a_kill_and_a_crash(edge: Edge, tmp_path: Path) -> None:
    opened(edge, tmp_path)
    found = edge.answers([b"abc"] * 20)
    assert {(each.outcome, str(each.result)) for each in found} == {("answered", "['ax1']")}
    assert {path[0].worker for each in found for path in each.paths} == {"handheld:cam-scan"}
    assert {each.origin.partition // first_partition(1) for each in found} == {1}
    assert edge.records(QUERIES) == edge.records(work_topic("scan")) == 0

    found = edge.answers([b"abc"] * 50, killed=True)  # each has exactly one outcome
    assert edge.starts == 2

    served_again(edge)

    edge.answers([b"die", b"abc"])  # each has exactly one outcome; the process ended at least once
    assert edge.starts >= 3
    served_again(edge)
