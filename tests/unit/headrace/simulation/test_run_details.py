"""Formats of rows of simulated runs."""

import sys
from pathlib import Path

import pytest

from headrace.errors import PipelineError
from headrace.simulation.run_details import check_format


def test_parquet_without_pyarrow_is_told_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No folder of installed packages: the import system then knows no pyarrow on any machine.
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pyarrow", raising=False)
    sys.path_importer_cache.clear()
    with pytest.raises(PipelineError, match=r"q\.parquet: Parquet needs pyarrow, .* \.csv"):
        check_format(tmp_path / "q.parquet")
