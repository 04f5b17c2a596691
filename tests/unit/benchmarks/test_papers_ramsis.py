"""benchmarks/papers/ramsis.py: the artifact's models and trace in Headrace's formats."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.commit import commit
from benchmarks.papers.ramsis import (
    DataError,
    Part,
    Seeds,
    compare,
    last_run,
    parts,
    played,
    recorded,
    write,
)
from benchmarks.papers.ramsis_compare import Row
from control.policies.ramsis.pareto_models import CandidateModel
from control.policies.ramsis.tables import models_of
from headrace.arrivals.arrivals_file import read_workload
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.profile_files import load_profile


def a_data_folder(folder: Path, seconds: int = 270) -> Path:
    """Two of three models are in the set; reading them does not need 32 batches."""
    for family in ("image", "text"):
        _table(
            folder / f"{family}_accuracy.csv",
            ("model", "accuracy_pct", "in_ramsis_set"),
            [("quick", 60.0, 1), ("odd", 50.0, 0), ("right", 80.5, 1)],
        )
        _table(
            folder / f"{family}_latency.csv",
            ("model", "batch", "n_reps", "plan_p95_ms"),
            [
                (model, batch, reps, ms * batch)
                for model, ms in (("quick", 10.0), ("odd", 11.0), ("right", 30.5))
                for batch, reps in ((2, 0), (1, 100))
            ],
        )
    _table(folder / "twitter_trace.csv", ("second", "qps"), [(s, 1000 + s) for s in range(seconds)])
    return folder


def _table(path: Path, names: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines).writerows([names, *rows])


def test_pipelines_are_valid_and_hold_the_set_of_the_paper(tmp_path: Path) -> None:
    out = tmp_path / "out"
    written = write(a_data_folder(tmp_path), out)
    assert sorted(path.name for path in written) == sorted(path.name for path in out.iterdir())
    for name, slo_s, workers in (("image", 0.15, 60), ("text", 0.1, 20)):
        file = read_pipeline_file(out / f"{name}.yaml")
        models = models_of(load_profile(file), file.pipeline.root, "emulated")
        assert models == (
            CandidateModel("quick", 0.6, (0.01, 0.02)),
            CandidateModel("right", 0.805, (0.0305, 0.061)),
        )
        assert file.pipeline.slo_s == slo_s
        assert file.cluster.devices == (("emulated", workers),)


def test_trace_is_written_as_recorded_and_as_the_artifact_runs_it(tmp_path: Path) -> None:
    write(a_data_folder(tmp_path), tmp_path / "out")
    recorded = (tmp_path / "out/twitter.csv").read_text().splitlines()
    looped = (tmp_path / "out/twitter-300s.csv").read_text().splitlines()
    assert recorded[:2] == ["second,qps", "0,1000"]
    assert recorded[-1] == "269,1269"
    assert len(looped) == 301
    assert looped[261:263] == ["260,1260", "261,1000"]
    times = read_workload(tmp_path / "out/twitter-300s.csv").drawn(np.random.default_rng(1))
    assert len(times) == pytest.approx(300 * 1110, rel=0.1)


def test_folder_without_the_data_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"image_accuracy\.csv cannot be read .*folder of the RAM"):
        write(tmp_path, tmp_path / "out")


def test_truncated_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 100 s; 261 are wanted"):
        write(a_data_folder(tmp_path, seconds=100), tmp_path / "out")


def test_page_cannot_be_rewritten_without_results(tmp_path: Path) -> None:
    write(a_data_folder(tmp_path), tmp_path)
    with pytest.raises(DataError, match=r"parts\.jsonl has no part of a comparison; .*--again"):
        compare(tmp_path, tmp_path, Seeds(1, 1, 1), again=True)


def test_every_part_has_a_name_of_its_own(tmp_path: Path) -> None:
    write(a_data_folder(tmp_path), tmp_path / "out")
    names = {name for name, _ in parts(tmp_path, tmp_path / "out", Seeds(1, 1, 1))}
    assert len(names) == 10 + 10 + 3


def test_interrupted_run_resumes_with_the_missing_parts(tmp_path: Path) -> None:
    seeds = Seeds(1, 1, 1)
    row = Row(
        on="constant", at=400, seed=0, policy="ramsis", queries=9, accuracy=0.8, violation=0.25
    )
    mine = [Part(name=name, commit=commit(), seeds=seeds, rows=(row,)) for name in "ab"]
    # Parts of other code or other seeds belong to another run.
    others = [replace(mine[0], commit="other"), replace(mine[0], seeds=Seeds(2, 1, 1))]
    record = recorded(tmp_path)
    for part in (*others, mine[0]):
        record.append(part)
    plays = [("a", lambda: pytest.fail("a is played again")), ("b", lambda: [row])]
    assert list(played(record, seeds, plays).values()) == mine
    assert record.read() == [*others, *mine]
    assert last_run(record) == {part.name: part for part in mine}
