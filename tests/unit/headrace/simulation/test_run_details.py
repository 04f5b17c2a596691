"""Row formats of simulated runs."""

import sys
from pathlib import Path

import pytest

from headrace.errors import PipelineError
from headrace.simulation.run_details import check_format, write_rows


def test_parquet_without_pyarrow_is_reported_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a folder of installed packages the import system finds no pyarrow on any machine.
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pyarrow", raising=False)
    sys.path_importer_cache.clear()
    with pytest.raises(PipelineError, match=r"q\.parquet: Parquet needs pyarrow, .* \.csv"):
        check_format(tmp_path / "q.parquet")


def test_rows_written_as_parquet_are_read_back(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    rows = [{"policy": "loki", "latency_ms": 2.5}, {"policy": "static", "latency_ms": None}]
    check_format(tmp_path / "q.parquet")
    write_rows(tmp_path / "q.parquet", rows)
    assert parquet.read_table(tmp_path / "q.parquet").to_pylist() == rows
