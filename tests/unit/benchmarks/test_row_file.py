"""benchmarks/row_file.py: rows survive a round trip, and a broken line is named."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.row_file import RowFile, RowFileError


@dataclass(frozen=True, slots=True)
class Mix:
    counts: tuple[int, ...]
    qps: float
    least_qps: float | None = None


def test_rows_are_read_back_as_they_were_in_their_order(tmp_path: Path) -> None:
    rows = [Mix((3, 0), 80.0), Mix((), math.inf, 1.5)]
    file = RowFile(tmp_path / "rows.jsonl", Mix)
    assert file.read() == []
    for row in rows:
        file.append(row)
    assert file.read() == rows


@pytest.mark.parametrize("line", ['{"counts": [3', '{"counts": [3]}', '{"counts": 3, "qps": 1.0}'])
def test_invalid_line_is_named_with_a_remedy(tmp_path: Path, line: str) -> None:
    file = RowFile(tmp_path / "rows.jsonl", Mix)
    file.append(Mix((3, 0), 80.0))
    with file.path.open("a") as lines:
        lines.write(line)
    with pytest.raises(RowFileError, match=r"rows\.jsonl, line 2: not a Mix .* remove the line"):
        file.read()
