"""`headrace demo` runs on a broker of its own, reports, and cleans up."""

import json
from pathlib import Path

import pytest

from tests.integration.demos import left_of, started

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def test_a_demo_accounts_for_every_query_and_leaves_nothing(tmp_path: Path) -> None:
    with started(tmp_path, "6") as demo:
        out, err = demo.communicate()
    assert demo.returncode == 0, err
    row = json.loads(out)
    outcomes = ("answered", "late", "dropped", "failed", "refused", "lost")
    assert row["queries"] == sum(row[name] for name in outcomes) > 50
    assert row["lost"] == 0
    assert row["warm_up_queries_excluded"] == 60
    assert [phase["policy"] for phase in row["phases"]] == ["accurate", "fast"]
    assert row["policy_change"]["epoch"] is not None
    assert set(row["variant_shares"]["shout"]) == {"careful", "hasty"}
    assert sum(step["share"] for step in row["time_spent"]) == pytest.approx(1.0, abs=1e-3)
    assert left_of(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []
