"""Traffic is split between variants by share, and its outcomes are reported by variant."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster
from headrace.config.pipeline_file import read_pipeline_file
from headrace.errors import PipelineError
from headrace.simulation.experiments import simulated_queries

CANARY = {
    "replicas": {"detect/small": 1, "read/small": 1, "read/large": 1},
    "traffic": {"read/large": 0.1},
}


def test_a_canary_gets_its_share_of_the_items(tmp_path: Path) -> None:
    one_task = {**CANARY, "replicas": {"read/small": 1, "read/large": 1}}
    path = a_cluster(tmp_path, children={"read": ()}, policies={"canary": one_task})
    rows = simulated_queries(path, policies=["canary"], rate_qps=40.0, seconds=30.0)
    assert {row["outcome"] for row in rows} == {"answered"}
    used = Counter(variant for row in rows for variant in row["variants"].split())
    assert used["read/large"] / len(rows) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"traffic": {"read/tiny": 0.1}}, r"names the variant 'read/tiny', which is none"),
        ({"traffic": {"read/large": 0.6, "read/small": 0.6}}, r"'read' add up to 1\.2; 1 is all"),
        ({"traffic": {"detect/large": 0.1}}, r"detect/large gets traffic and no worker; add it"),
        ({"traffic": {"read/large": 1.5}}, r"traffic.* is 1\.5; it must be"),
    ],
)
def test_invalid_shares_are_refused(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        read_pipeline_file(a_cluster(tmp_path, policies={"canary": {**CANARY, **changes}}))
