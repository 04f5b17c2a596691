"""Shadows on a real broker measure agreement with the most accurate path; each query has one
answer."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from benchmarks.rig import Rig
from benchmarks.small_cluster import an_entry
from headrace.cli.main import run
from headrace.client.accuracy_topic import newest_accuracy
from schemas.records import MeasuredAccuracy

pytestmark = pytest.mark.kafka

OPERATORS = """
class Exact:
    def load(self, device): pass
    def predict(self, batch): return [int(value) ** 2 for value in batch]

class Rough(Exact):
    def predict(self, batch): return [n ** 2 + (n % 4 == 0) for n in map(int, batch)]
"""
OPERATOR = {"small": "shadowed_here:Rough", "large": "shadowed_here:Exact"}
QUERIES = 60


@pytest.fixture(scope="module")
def rig(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("shadows")
    (folder / "shadowed_here.py").write_text(OPERATORS)
    entries = [
        {**an_entry("square", name, (), 0, 0.001, 0.1), "device": "cpu", "operator": operator}
        for name, operator in OPERATOR.items()
    ]
    profile = {"pipeline": "lines", "provenance": {}, "entries": entries}
    (folder / "profile.json").write_text(json.dumps(profile))
    variants = {
        name: {"operator": operator, "batch": 4, "replicas": 1}
        for name, operator in OPERATOR.items()
    }
    description = {
        "slo": "20s", "input": "raw", "egress_partitions": 2, "profiles": ["profile.json"],
        "tasks": {"square": {"slots": 4, "variants": variants}},
        "cluster": {"devices": {"cpu": 2}, "ingress": 1, "egress": 1},
        "labels": {"shadow": {"share": 1.0}},
    }  # fmt: skip
    with closing(Rig(broker, folder, description)) as rig:
        rig.up()
        yield rig


def test_shadows_measure_the_agreement_and_answer_nothing(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[MeasuredAccuracy] = []
    for number in range(QUERIES):
        rig.ask(str(number).encode())
        rig.pass_time(0.02)  # a worker holds up to 64 shadows

    def counted() -> bool:
        newest = newest_accuracy(rig.kafka, rig.name)
        found[:] = [newest] if newest else []
        return bool(found) and sum(found[0].shadow_counts.values()) >= QUERIES

    rig.until(counted, f"the scorer to compare {QUERIES} shadows")
    assert found[0].rows == ()  # there are no labels
    counts = found[0].shadow_counts
    assert counts["failed"] == 0
    assert sum(counts.values()) == QUERIES
    (row,) = found[0].shadows
    assert (row.path, row.reference, row.queries) == (
        "square/small", "square/large", counts["compared"]
    )  # fmt: skip
    by_small = {a.id for a in rig.answers if a.paths and a.paths[0][0].variant == "small"}
    agreed = [n for n, name in enumerate(rig.asked) if name in by_small and n % 4]
    assert row.right == len(agreed) > 0
    assert row.reference_accuracy == 0.95

    assert len(rig.answers) == len({answer.id for answer in rig.answers}) == len(rig.asked)
    assert run(["status", str(rig.file.path), "--bootstrap", rig.bootstrap, "--once"]) == 0
    assert "by shadows: square/small equals square/large in" in capsys.readouterr().out
