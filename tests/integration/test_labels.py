"""Labels on a real broker: a scorer measures the accuracy despite restarts and hostile labels."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from benchmarks.rig import Rig
from benchmarks.squares import PIPELINE, right
from headrace.cli.main import run
from headrace.client.accuracy_topic import newest_accuracy
from schemas.codec.single_object import encode
from schemas.effects import LABELS, RESULTS
from schemas.records import Label, MeasuredAccuracy
from streams.kafka.kafka_client import producer
from streams.topics import physical

pytestmark = pytest.mark.kafka

JUDGE = """
def judge(result, truth):
    return 1 - abs(result - truth), 1
"""
HOSTILE = (
    b"",
    b"{",
    b"\x00\x01",
    b'{"id": "x"}',
    b'{"id": "x", "right": 9, "of": 1}',
    b"\xff" * 5000,
)


@pytest.fixture(scope="module")
def rig(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("labels")
    (folder / "judged_here.py").write_text(JUDGE)
    labels = {"scorer": "judged_here:judge"}
    with closing(Rig(broker, folder, {**PIPELINE, "slo": "30s", "labels": labels})) as rig:
        rig.up()
        yield rig


def label(rig: Rig, *values: bytes) -> None:
    with closing(producer(rig.kafka)) as sender:
        for value in values:
            sender.produce(physical(rig.name, LABELS), value)
        sender.flush(10.0)


def measured(rig: Rig, **counts: int) -> MeasuredAccuracy:
    """Return the scorer's record once it has these counts."""
    found: list[MeasuredAccuracy] = []

    def counted() -> bool:
        newest = newest_accuracy(rig.kafka, rig.name)
        found[:] = [newest] if newest else []
        return bool(found) and all(found[0].counts[name] >= many for name, many in counts.items())

    rig.until(counted, f"the scorer to count {counts}")
    return found[0]


def test_labels_give_an_accuracy_and_survive_a_killed_scorer(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [rig.ask(str(number).encode()) for number in range(8)]
    truths = [right(number) + (number > 5) for number in range(8)]
    label(rig, *HOSTILE)
    label(rig, *(json.dumps({"id": name, "truth": truth}).encode()
                 for name, truth in zip(names[:4], truths, strict=False)))  # fmt: skip
    assert measured(rig, scored=4, unreadable=len(HOSTILE)).counts["scored"] == 4
    rig.kill("scorer")
    label(rig, *(encode(Label(id=name, truth=truth)) for name, truth in
                 zip(names[2:], truths[2:], strict=True)))  # fmt: skip
    rig.start("scorer")
    found = measured(rig, scored=8, repeated=2)
    assert found.counts["scored"] == 8
    assert found.counts["repeated"] == 2
    (row,) = found.rows
    assert (row.path, row.queries, row.accuracy) == ("split/plain > square/plain", 8, 0.75)

    given = [str(rig.file.path), "--bootstrap", rig.bootstrap, "--json"]
    assert run(["status", *given, "--once"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["measured"]["overall"]["accuracy"] == 0.75
    assert run(["report", *given]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["measured"]["paths"] == status["measured"]["paths"]
    assert report["measured"]["overall"]["queries"] == 8


def test_a_scorer_begins_anew_when_partitions_are_added_to_the_results(rig: Rig) -> None:
    rig.may_end.add("scorer")
    rig.add_partitions(RESULTS, 5)
    said = "results' has 5 partitions and had 4 when this role began"
    rig.until(lambda: said in rig.log("scorer").read_text(), said)
    rig.until(lambda: rig.ended("scorer"), "the scorer to end")
