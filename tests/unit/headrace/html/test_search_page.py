"""`headrace search --html`: the page of found plans and the progress before it."""

from pathlib import Path

import pytest

from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file, search_space
from headrace.html.search_page import search_page
from headrace.planning.recorded_truth import read_truth
from headrace.planning.search_report import progress_note
from headrace.planning.session_search import Asked, Found, RecordedProfiles, searched
from tests.unit.headrace.html.test_page import Reader
from tests.unit.headrace.planning.test_session_search import files


def pages(folder: Path, **asked: float) -> list[tuple[str, str]]:
    """Return the note and the page after every step of a search, and at its end."""
    file, _, truth = files(folder)
    read = read_pipeline_file(Path(file))
    space = search_space(read)
    source = RecordedProfiles(space.space, read_truth(Path(truth), space.space))
    told: list[tuple[str, str]] = []

    def tell(found: Found) -> None:
        told.append((progress_note(found), search_page(read.path.name, found)))

    tell(searched(read, source, Asked(**asked), tell))  # type: ignore[arg-type]
    return told


def test_the_page_has_the_plans_found_so_far_and_every_step(tmp_path: Path) -> None:
    told = pages(tmp_path)
    for number, (_, page) in enumerate(told[:-1], 1):
        assert Reader(page).open == []
        assert f"{number} of 12 configurations profiled" in page
        assert "continues" in page
    last = told[-1][1]
    assert "stopped at its space" in last
    assert "continues" not in last
    assert last.count('<g class="spot') >= 1
    assert "read/cnn@votes=3" in last
    assert "Cost of the cheapest plan" in last


def test_the_note_names_what_is_known_so_far(tmp_path: Path) -> None:
    notes = [note for note, _ in pages(tmp_path)]
    assert notes[0] == "1 configuration, no plan yet"
    assert notes[-1].startswith(f"{len(notes) - 1} configurations, ")
    assert notes[-1].endswith("$/h")


def test_a_search_without_a_plan_shows_the_nearest(tmp_path: Path) -> None:
    note, page = pages(tmp_path, accuracy=1.0)[-1]
    assert note.endswith("no plan yet")
    assert "the nearest configuration: accuracy" in page
    assert Reader(page).open == []


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert run(["search", *files(tmp_path), "--html", str(page)]) == 0
    assert "planned.yaml" in page.read_text()
    assert f"wrote {page}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--html", "nowhere/page.html"], "there is no folder nowhere"),
        (["--from-topic", "600s", "--session", "cam-1"], "--recorded"),
    ],
)
def test_odd_questions_get_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert run(["search", *files(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err


def test_inputs_of_a_topic_are_those_of_a_named_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, *_ = files(tmp_path)
    assert run(["search", file, "--from-topic", "600s"]) == 2
    assert "name it with --session" in capsys.readouterr().err
    assert run(["search", file, "--from-topic", "600s", "--session", "cam-1"]) == 2
    assert "needs labels" in capsys.readouterr().err
