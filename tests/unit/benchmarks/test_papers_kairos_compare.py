"""The page of Kairos' comparison, from searches that were kept."""

import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.papers.kairos_compare import RankingRow, Search, page, read


def test_the_page_has_every_rule_and_marks_what_misses_its_least_value() -> None:
    found = [
        Search("rm2", "kairos", "kairos", (1, 0, 13, 0), 0, 130.0),
        Search("rm2", "kairos", "kairos", (1, 0, 13, 0), 1, 134.0),
        Search("rm2", "fcfs", "fcfs", (3, 0, 6, 0), 0, 80.0),
        Search("rm2", "earliest", "earliest", (2, 0, 9, 0), 0, 120.0),
        Search("rm2", "homogeneous", "fcfs", (4, 0, 0, 0), 0, 50.0),
    ]
    text = page(found, [RankingRow("rm2", "fluid", 1, 1.0, 0.94)])
    assert "| rm2 | 132/s on 1+0+13+0 | 80/s on 3+0+6+0 | 120/s on 2+0+9+0 | - |" in text
    assert "| fcfs | 1.65 (1.87, must 1.50) | not run |" in text
    assert "| earliest | **1.10** (1.24, must 1.22) |" in text
    assert "| homogeneous | 2.22 (2.20, must 2.00) |" in text  # 50 scaled by 2.5 / 2.104
    assert "| rm2 | fluid | 1 | 1.000 | 0.940 |" in text
    assert "Seeds by model: rm2 2." in text


def test_searches_that_were_kept_are_read_back(tmp_path: Path) -> None:
    kept = tmp_path / "comparison.jsonl"
    assert read(kept) == []
    found = Search("rm2", "fcfs", "fcfs", (3, 0, 6, 0), 0, 80.0)
    kept.write_text(json.dumps(asdict(found)) + "\n")
    assert read(kept) == [found]
