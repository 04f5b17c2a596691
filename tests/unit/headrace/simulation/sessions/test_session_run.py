"""The queries of a simulated session count by the outcome that every other figure uses."""

from pathlib import Path

from headrace.config.pipeline_file import read_pipeline_file, search_space
from headrace.planning.recorded_truth import read_truth
from headrace.planning.sessions_file import read_sessions
from headrace.simulation.sessions.session_nodes import Recording
from headrace.simulation.sessions.session_results import as_row
from headrace.simulation.sessions.session_run import KEPT, lives, summed
from schemas.effects import RESULTS
from schemas.records import REFUSED
from tests.builders import an_answer

POSTCODE = Path(__file__).parents[5] / "examples" / "postcode"


def test_late_and_incomplete_answers_are_not_in_time(tmp_path: Path) -> None:
    file = read_pipeline_file(POSTCODE / "planned.yaml")
    space = search_space(file)
    truth = read_truth(POSTCODE / "planned-truth.json", space.space)
    path = tmp_path / "sessions.yaml"
    path.write_text("cam: {slo: 200ms, accuracy: 0.9, qps: 4}")
    answers = [
        an_answer(0, id="cam#0", late=True),
        an_answer(1, id="cam#1", incomplete=True),
        an_answer(2, id="cam#2", outcome=REFUSED),
    ]
    run = summed(
        file,
        Recording(file.pipeline, space, truth),
        {**dict.fromkeys(KEPT, ()), RESULTS: answers},
        lives(read_sessions(path, space), 0.0, 25.0),
        25.0,
        0.0,
    )
    (row,) = as_row(run)["by_session"]
    assert row["queries"] == {"dropped": 1, "late": 1, "refused": 1}
    assert (row["attainment"], row["accuracy"]) == (0.0, None)
