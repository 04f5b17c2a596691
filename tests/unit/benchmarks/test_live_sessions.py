"""Live sessions equal those of the simulation and use the recorded operators."""

import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks.live_sessions import KINDS, SAMPLES, written
from control.policies.compass.search.prefix_cache import PrefixCache
from headrace.config.pipeline_file import search_space
from headrace.config.user_functions import load_workload
from headrace.planning.recorded_truth import read_truth
from headrace.planning.sessions_file import read_sessions
from headrace.roles.profiling.loaded_operators import Operators
from headrace.simulation.sessions.session_results import as_row
from headrace.simulation.sessions.session_run import played_sessions
from operators.join import as_list
from operators.profiler import Profiler, Sample


def test_the_recording_has_the_scores_that_a_profiler_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    file, _, path = written(tmp_path, 4, 60.0)
    space, workload = search_space(file), load_workload(file)
    assert workload is not None
    operators = Operators(file, space, "cpu")
    profiler = Profiler(file.pipeline, space.space, PrefixCache(0), as_list, workload.score)
    queries = islice(workload.queries(np.random.default_rng(0)), SAMPLES)
    samples = [Sample(number, *each) for number, each in enumerate(queries)]
    for c, scores in enumerate(read_truth(path, space.space).scores):
        assert profiler.profile(c, "workload@0", samples, operators.run).scores == scores.tolist()
    sys.modules.pop("live_sessions_operators")


def test_sessions_open_in_turn_and_are_served_in_simulation(tmp_path: Path) -> None:
    file, path, truth = written(tmp_path, 8, 60.0)
    listed = read_sessions(path, search_space(file))
    assert len(listed) == 8
    assert len({each.opens_s for each in listed}) == 8
    assert max(each.opens_s + (each.lasts_s or 0.0) for each in listed) <= 60.0
    run = as_row(played_sessions(file, path, truth, 60.0, 0))
    assert run["served"] == 2 * len(KINDS)
    sys.modules.pop("live_sessions_operators", None)
