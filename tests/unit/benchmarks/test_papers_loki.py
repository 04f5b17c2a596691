"""benchmarks/papers/loki_compare.py: its scenes can be played; what of a trace is played."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.loki import TRACES, write
from benchmarks.papers.loki_compare import AUTHORS, SCENES, Stretch, authors_text
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.policy_options import with_policies
from headrace.simulation.static_best import NAME

DATA = Path(__file__).parents[4] / "shared" / "data" / "loki"


def test_a_stretch_of_a_trace_begins_at_0_and_one_of_every_so_many_arrivals_is_played() -> None:
    times = np.array([0.0, 1.0, 1.5, 2.0, 2.5, 3.0])
    assert Stretch().of(times, 1).tolist() == times.tolist()
    assert Stretch(since_s=1.0, seconds=1.5).of(times, 1).tolist() == [0.0, 0.5, 1.0]
    assert Stretch().of(times, 3).tolist() == [0.0, 2.0]


@pytest.mark.skipif(not DATA.exists(), reason=f"Loki's data is not at {DATA}")
def test_every_scene_names_a_pipeline_a_trace_and_policies_that_are_there(tmp_path: Path) -> None:
    write(DATA, tmp_path)
    for scene in SCENES.values():
        file = read_pipeline_file(tmp_path / f"{scene.pipeline}.yaml")
        with_policies(file, [name for name in scene.policies if name != NAME])
        assert scene.trace in TRACES
        assert (tmp_path / f"{scene.trace}-arrivals.txt.gz").exists()


def test_what_was_measured_of_the_authors_code_is_told_for_each_trace_that_is_played_whole() -> (
    None
):
    assert set(AUTHORS) == {scene.trace for scene in SCENES.values()}
    assert "InferLine" in authors_text("traffic-288s")
