"""A profiler reads a session's labelled inputs from the topics while queries arrive."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from control.problem.sample_sets import InputSet
from headrace.broker import local_broker as local
from headrace.client.topic_clients import Asker, Labeller
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.roles.input_topic.recent_inputs import InputsBetween, RecentInputs
from headrace.roles.profiling.profiler_role import input_source
from operators.profiler import Sample
from schemas.records import Label, Query
from streams.kafka.admin.preflight import prepare, prepare_input
from streams.kafka.kafka_config import KafkaConfig

pytestmark = pytest.mark.kafka

YAML = """\
name: recent-{number}
slo: 1s
input: raw
results: json
labels: {{}}
tasks:
  read:
    variants:
      read:
        operator: "operators.models.python:Python"
        arguments: {{function: "builtins:bytes"}}
cluster: {{devices: {{cpu: 1}}}}
"""


@pytest.fixture
def file(broker: str, tmp_path: Path) -> PipelineFile:
    path = tmp_path / "recent.yaml"
    path.write_text(YAML.format(number=uuid.uuid4().hex[:8]))
    file = read_pipeline_file(path)
    for role in ("ingress", "scorer"):
        prepare(KafkaConfig(broker), file.pipeline, role)
    return file


class Sender:
    """A user of two sessions who labels the queries."""

    def __init__(self, kafka: KafkaConfig, file: PipelineFile) -> None:
        self._asker, self._labeller = Asker(kafka, file.pipeline), Labeller(kafka, file.pipeline)

    def send(self, name: str, session: str, *, truth: str | None = None) -> None:
        """Send a query, and a label if there is a truth; return once the broker has both."""
        self._asker.ask(Query(payload=name.encode(), id=name, session=session))
        self._asker.flush()
        if truth is not None:
            self._labeller.send(Label(id=name, truth=truth))

    def close(self) -> None:
        self._asker.close()
        self._labeller.close()


@contextmanager
def others(kafka: KafkaConfig, file: PipelineFile) -> Iterator[None]:
    """Send another session's queries and labels, fifty a second, within the block."""
    over = threading.Event()

    def send() -> None:
        with closing(Sender(kafka, file)) as sender:
            number = 0
            while not over.wait(0.02):
                number += 1
                sender.send(f"other-{number}", "other", truth="x")

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def until_there(recent: RecentInputs | InputsBetween, first: int, upto: int) -> list[Sample]:
    """Request samples as a profiler does, until they are available or the set ends before them."""
    while (found := recent.of(first, upto)) is None:
        pass
    return found


def test_inputs_are_read_in_the_order_of_their_labels_while_others_arrive(
    broker: str, file: PipelineFile
) -> None:
    kafka, inputs = KafkaConfig(broker), InputSet("cam", time.time() - 60.0)
    with others(kafka, file), closing(Sender(kafka, file)) as sender:
        sender.send("early", "cam", truth="before")
        sender.send("no label", "cam")
        for number in range(12):
            sender.send(f"cam-{number}", "cam", truth=f"truth {number}")
        sender.send("odd", "other", truth="another session's")
        with closing(RecentInputs(kafka, kafka, file.pipeline, inputs)) as recent:
            found = until_there(recent, 0, 10)
            assert [each.payload for each in found] == [
                b"early", *(f"cam-{n}".encode() for n in range(9))
            ]  # fmt: skip
            assert found[1].truth == "truth 0"
            sender.send("cam-12", "cam", truth="truth 12")  # arrives during the wait
            assert [each.payload for each in until_there(recent, 10, 14)] == [
                f"cam-{n}".encode() for n in range(9, 13)
            ]


def test_inputs_that_stay_at_the_edge_are_read_from_its_broker(
    broker: str, file: PipelineFile, tmp_path: Path
) -> None:
    """Profilers read the central topic, so a session with --input was never searched anew."""
    central, inputs = KafkaConfig(broker), InputSet("cam", time.time() - 60.0)
    with local.borrow(tmp_path / "site") as site:
        there = KafkaConfig(site.bootstrap)
        prepare_input(there, file.pipeline)
        with (
            closing(Asker(there, file.pipeline)) as asker,
            closing(Labeller(central, file.pipeline)) as labeller,
        ):
            asker.ask(Query(payload=b"at the edge", id="q", session="cam"))
            asker.flush()
            labeller.send(Label(id="q", truth="right"))
        found = {}
        for brokers in ({}, {"cam": site.bootstrap}):
            source = input_source(central, replace(file, inputs=brokers), "cam")
            for kind, reader in {
                "labelled": RecentInputs(central, source, file.pipeline, inputs),
                "all": InputsBetween(source, file.pipeline, inputs._replace(until_s=time.time())),
            }.items():
                with closing(reader) as recent:
                    found[kind, bool(brokers)] = [s.payload for s in until_there(recent, 0, 1)]
    assert found == {
        ("labelled", False): [], ("all", False): [],
        ("labelled", True): [b"at the edge"], ("all", True): [b"at the edge"],
    }  # fmt: skip


def test_inputs_for_a_reference_need_no_labels_and_end_at_their_last_time(
    broker: str, file: PipelineFile
) -> None:
    kafka, since_s = KafkaConfig(broker), time.time() - 60.0
    with closing(Sender(kafka, file)) as sender:
        for number in range(6):
            sender.send(f"cam-{number}", "cam", truth="any" if number % 2 else None)
            sender.send(f"odd-{number}", "other")
        until_s = time.time() + 3.0  # opening the consumer may take a second
        inputs = InputSet("cam", since_s, until_s)
        names = [f"cam-{number}".encode() for number in range(6)]
        with closing(InputsBetween(kafka, file.pipeline, inputs)) as between:
            assert between.of(0, 3) is None  # more inputs may still reach the broker
            first = [each.payload for each in until_there(between, 0, 3)]
            sender.send("cam-6", "cam")
            rest = [each.payload for each in until_there(between, 3, 9)]
            assert sorted(map(bytes, first + rest)) == names
        with closing(InputsBetween(kafka, file.pipeline, inputs)) as another:
            # Inputs of the same millisecond are ordered by partition, for every profiler.
            assert [each.payload for each in until_there(another, 0, 6)] == first + rest
