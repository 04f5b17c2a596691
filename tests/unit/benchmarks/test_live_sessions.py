"""The sessions that are played live are those of the simulation, with operators as recorded."""

import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks.live_sessions import KINDS, SAMPLES, written
from headrace.config.pipeline_file import search_space
from headrace.config.user_functions import load_workload
from headrace.planning.recorded_truth import read_truth
from headrace.planning.sessions_file import read_sessions
from headrace.simulation.session_results import as_row
from headrace.simulation.session_run import played
from operators.models.loading import load_operator


def test_the_recording_has_the_scores_of_the_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    file, _, path = written(tmp_path, 4, 60.0)
    space, workload = search_space(file), load_workload(file)
    assert workload is not None
    truth = read_truth(path, space.space)
    queries = list(islice(workload.queries(np.random.default_rng(0)), SAMPLES))
    for c, scores in enumerate(truth.scores):
        values = [payload for payload, _ in queries]
        for task in ("scan", "read"):
            variant = space.variant(file.pipeline, space.setting(task, c))
            values = load_operator(variant).predict(values)
        right = [
            workload.score([made], true)[0] for made, (_, true) in zip(values, queries, strict=True)
        ]
        assert right == scores.tolist()
    sys.modules.pop("live_sessions_operators")


def test_sessions_open_in_turn_and_are_served_in_simulation(tmp_path: Path) -> None:
    file, path, truth = written(tmp_path, 8, 60.0)
    listed = read_sessions(path, search_space(file))
    assert len(listed) == 8
    assert len({each.opens_s for each in listed}) == 8
    assert max(each.opens_s + (each.lasts_s or 0.0) for each in listed) <= 60.0
    run = as_row(played(file, path, truth, 60.0, 0))
    assert run["served"] == 2 * len(KINDS)
    sys.modules.pop("live_sessions_operators", None)
