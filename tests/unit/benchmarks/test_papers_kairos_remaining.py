from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.kairos import write
from benchmarks.papers.kairos_cases import HOP_S, TRACE, case_file
from benchmarks.papers.kairos_remaining import played
from tests.unit.benchmarks.test_papers_kairos import a_data_folder

SIZES = np.random.default_rng(1).choice((500, 1000), 300).tolist()
# As the profile of ``a_data_folder``, in seconds.
TAKEN = {"gpu": {500: 0.01, 1000: 0.02}, "slow": {500: 0.02, 1000: 0.04}}


@pytest.mark.parametrize(("stretch", "error_s"), [(1.0, 1e-9), (1.02, 2e-3)])
def test_predictions_are_exact_where_devices_keep_to_their_profile(
    tmp_path: Path, stretch: float, error_s: float
) -> None:
    write(a_data_folder(tmp_path, largest=1000), tmp_path / "out")
    file = case_file(tmp_path / "out", "rm2", TRACE)
    file = replace(file, pipeline=replace(file.pipeline, comm_s=HOP_S, slo_s=0.1))
    taken = {
        name: {size: np.array([seconds * stretch]) for size, seconds in by_size.items()}
        for name, by_size in TAKEN.items()
    }
    found = played(file, ["gpu", "slow", "slow"], taken, SIZES, 90.0)
    assert len(found.true_s) > len(SIZES)
    errors_s = np.abs(found.predicted_s - found.true_s)
    assert errors_s.max() < error_s
    assert (errors_s.max() > 1e-6) == (stretch != 1.0)
