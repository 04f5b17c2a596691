"""Sessions are replanned on a real broker after a link slows down or the data changes."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from benchmarks.knob_operators import a_workload, an_operator
from headrace.client.session_view import open_session, serving
from headrace.client.topic_clients import Asker, Labeller, Tail, decoded
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.roles.link_file import change_link
from schemas.effects import PROFILE_RESULTS, SESSIONS
from schemas.enumerations import SessionState
from schemas.records import Label, ProfileResult, Query, Session
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

# One vote reads only "a" correctly; three votes also read "b".
MODULE = (
    an_operator("Scan", "scale", "[value]")
    + an_operator("Read", "votes", 'chr(value[0]) if value[0] == 97 or self._votes == 3 else "?"')
    + a_workload("Words", 'while True: yield b"a" * 20_000, "a"')
    + """
def right(result, truth):
    return result[0] == truth
"""
)
YAML = """\
name: adapting-{number}
workload: adapting_words:Words
slo: {{latency: 300ms, accuracy: 0.9}}
input: raw
results: json
policy: compass
labels: {{scorer: "adapting_words:right"}}
policies:
  compass: {{kind: compass, deadline: 60s, spend: 0}}
tasks:
  scan:
    children: [read]
    tiers: [handheld]
    knobs: {{scale: [1, 0.5]}}
    variants: {{scan: {{operator: "adapting_words:Scan", arguments: {{scale: $scale}}}}}}
  read:
    tiers: [depot, cloud]
    knobs: {{votes: [1, 3]}}
    variants: {{read: {{operator: "adapting_words:Read", arguments: {{votes: $votes}}}}}}
cluster:
  tiers:
    handheld: {{speed: 0.5, per: session, count: 2}}
    depot: {{speed: 1, count: 1, price: 0.4}}
    cloud: {{speed: 1, count: 1, price: 0.2}}
  links:
    handheld>cloud: {{rate: 4Mbps, delay: 5ms}}
    handheld>depot: {{rate: 4Mbps, delay: 5ms}}
"""
RATE = 10.0  # queries/s of a session
WITHIN_S = 45.0  # of the change; a busy machine needs longer than the promised one and ten seconds


class Stream:
    """Sessions with labelled queries, their records, and the blocks that have run."""

    def __init__(self, file: PipelineFile, broker: str) -> None:
        self.file, self.kafka = file, KafkaConfig(broker)
        name = file.pipeline.name
        self._asker = Asker(self.kafka, file.pipeline)
        self._labeller = Labeller(self.kafka, file.pipeline)
        self._sessions = Tail(self.kafka, physical(name, SESSIONS), 0.0)
        self._results = Tail(self.kafka, physical(name, PROFILE_RESULTS), 0.0)
        self._numbers = count()
        self._next_s = time.monotonic()
        self.records: list[Session] = []
        self.blocks: set[tuple[str, int]] = set()

    def open(self, slo: str) -> None:
        """Open two sessions that serve by one vote in the cloud, and send queries for a while."""
        for name in BOTH:
            assert open_session(self.file, self.kafka, name, {"slo": slo}).ok
            serving(self.file, self.kafka, name, 120.0)
        until = time.monotonic() + 3.0
        while time.monotonic() < until:
            self.step(BOTH, labelled=False)
        assert chosen(self.newest("one")) == ("read/read@votes=1", "cloud")

    def step(self, inputs: dict[str, bytes], *, labelled: bool = True) -> None:
        """Send a query of each session when it is due, and read the new records."""
        if time.monotonic() >= self._next_s:
            self._next_s = max(self._next_s + 1 / RATE, time.monotonic() - 1.0)
            for session, letter in inputs.items():
                name = f"{session}-{next(self._numbers)}"
                self._asker.ask(Query(payload=letter * 20_000, id=name, session=session))
                if labelled:
                    self._labeller.send(Label(id=name, truth=letter.decode()))
        found = map(decoded, self._sessions.take(0.02))
        self.records += [each for each in found if isinstance(each, Session)]
        results = map(decoded, self._results.take(0.0))
        self.blocks |= {
            (f"{each.sample_set} {sorted(each.options.items())}", each.first)
            for each in results
            if isinstance(each, ProfileResult) and each.scores
        }

    def newest(self, name: str) -> Session:
        return [each for each in self.records if each.id == name][-1]

    def served_anew(self, name: str, inputs: dict[str, bytes], *, labelled: bool) -> Session:
        """Continue until a session serves by another plan; return its record."""
        before, until = self.newest(name), time.monotonic() + WITHIN_S
        while True:
            self.step(inputs, labelled=labelled)
            now = self.newest(name)
            if now.state is SessionState.SERVING and now.number > before.number:
                return now
            assert time.monotonic() < until, (now, len(self.blocks))

    def close(self) -> None:
        with closing(self._sessions), closing(self._results):
            self._asker.close()
            self._labeller.close()


@pytest.fixture
def stream(broker: str, tmp_path: Path) -> Iterator[Stream]:
    """Run a pipeline."""
    (tmp_path / "adapting_words.py").write_text(MODULE)
    path = tmp_path / "adapting.yaml"
    path.write_text(YAML.format(number=uuid.uuid4().hex[:8]))
    up = [sys.executable, "-m", "headrace", "up", str(path), "--bootstrap", broker, "--detach"]
    try:
        subprocess.run(up, check=True, timeout=120)
        with closing(Stream(read_pipeline_file(path), broker)) as stream:
            yield stream
    finally:
        down = [sys.executable, "-m", "headrace", "down", str(path)]
        subprocess.run(down, check=False, timeout=60)


BOTH = {"one": b"a", "two": b"a"}


def chosen(session: Session) -> tuple[str, str]:
    plan = session.plans[session.chosen]
    return plan.settings["read"], plan.tiers["read"]


def seen(what: str, session: Session, changed_s: float) -> None:
    """Print the duration of each part."""
    print(
        f"{what}: served anew after {session.changed_s - changed_s:.2f} s: detection "
        f"{session.detect_s:.2f} s, search {session.search_s:.2f} s, switch-over "
        f"{session.switch_s:.2f} s, {session.steps} configurations",
        file=sys.stderr,
    )


def test_a_session_leaves_a_slower_link_without_profiling_and_the_other_session_is_unchanged(
    stream: Stream,
) -> None:
    stream.open("300ms")
    other, blocks, changed_s = stream.newest("two"), len(stream.blocks), time.time()
    change_link(stream.file, "one", "handheld>cloud", "0.4Mbps", None)

    session = stream.served_anew("one", BOTH, labelled=False)

    seen("link", session, changed_s)
    assert session.cause.startswith("its link handheld>cloud is ")
    assert session.stopped == "priced"
    assert chosen(session)[1] == "depot"
    assert len(stream.blocks) == blocks
    assert stream.newest("two").number == other.number
    assert stream.newest("two").replans == 0


def test_a_session_on_changed_data_is_profiled_again_and_the_other_session_is_unchanged(
    stream: Stream,
) -> None:
    stream.open("3s")  # so that delays of a busy machine cause no replanning
    other, changed_s = stream.newest("two"), time.time()

    session = stream.served_anew("one", {"one": b"b", "two": b"a"}, labelled=True)

    seen("data", session, changed_s)
    assert session.cause == "its measured accuracy is below 0.9"
    assert session.samples.startswith("recent@one@")
    assert chosen(session)[0] == "read/read@votes=3"
    assert stream.newest("two").number == other.number
    assert stream.newest("two").replans == 0
