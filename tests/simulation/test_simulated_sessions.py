"""Sessions open and close on the shipped recording, in virtual time."""

from pathlib import Path

import pytest

from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.sessions.session_results import as_row, as_text
from headrace.simulation.sessions.session_run import SessionsRun, played_sessions

POSTCODE = Path(__file__).parents[2] / "examples" / "postcode"
SESSIONS = """
cam: {slo: 200ms, accuracy: 0.9, count: 3, every: 6s, lasts: 12s, qps: 4}
sharp: {slo: 120ms, accuracy: 0.999, opens: 1s, qps: 2}
late: {slo: 200ms, accuracy: 0.9, opens: 999s}
"""


def play(tmp_path: Path) -> SessionsRun:
    path = tmp_path / "sessions.yaml"
    path.write_text(SESSIONS)
    file = read_pipeline_file(POSTCODE / "planned.yaml")
    return played_sessions(file, path, POSTCODE / "planned-truth.json", 25.0, 0)


@pytest.mark.thorough
def test_sessions_are_planned_served_and_forgotten(tmp_path: Path) -> None:
    run = play(tmp_path)
    row = as_row(run)
    by_session = {each["session"]: each for each in row["by_session"]}
    for name in ("cam-1", "cam-2", "cam-3"):
        found = by_session[name]
        assert found["lasted_s"] == 12.0
        assert 0 <= found["planned_s"] < found["serving_s"] < 6.0  # within the search's deadline
        assert found["served_s"] == pytest.approx(12.0 - found["serving_s"], abs=0.1)
        assert found["attainment"] > 0.98
        assert found["accuracy"] > 0.88  # of some forty samples
    # The other sessions reuse the profiles of the first search.
    assert by_session["cam-3"]["serving_s"] < 1.0
    assert by_session["sharp"]["serving_s"] is None
    assert "no plan meets its objectives" in by_session["sharp"]["reason"]
    assert by_session["late"] == {**by_session["late"], "serving_s": None, "queries": {}}
    assert row["served"] == 3
    assert row["plans"] < 20
    planned = [by_session[f"cam-{number}"]["planned_s"] for number in (1, 2, 3)]
    assert min(planned) <= row["planned_p95_s"] < max(planned)
    assert by_session["sharp"]["planned_s"] is None
    usd_per_h = sum({"depot": 0.05, "cloud": 0.2}[t["tier"]] * t["used"] for t in row["tiers"])
    assert usd_per_h == pytest.approx(row["usd_per_h"])
    assert all(0 <= each["used"] <= each["of"] for each in row["tiers"])
    assert 0.5 < row["goodput_sessions"] < 1.5  # 3 sessions of 12 s in 25 s
    assert "3 of 5 sessions served" in as_text(run)


@pytest.mark.thorough
def test_a_run_is_repeated_by_its_seed(tmp_path: Path) -> None:
    assert as_row(play(tmp_path)) == as_row(play(tmp_path))
