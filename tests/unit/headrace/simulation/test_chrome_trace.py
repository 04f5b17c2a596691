"""Traces of runs: a tape gives the same trace as the run that it recorded."""

import json
from pathlib import Path

import pytest

from headrace.simulation.chrome_trace import ChromeTrace
from tests.small_world import run_live, simulate, small_nodes, small_pipeline
from tests.tape import Tape


class Both:
    """An observer that passes a run to two observers."""

    def __init__(self, tape: Tape, trace: ChromeTrace) -> None:
        self.observers = (tape, trace)

    def saw(self, *seen: object) -> None:
        for observer in self.observers:
            observer.saw(*seen)  # type: ignore[arg-type]


def draw(tape: Tape, path: Path) -> None:
    with ChromeTrace(path) as trace:
        for entry in tape.entries:
            trace.saw(entry.node, entry.event, entry.effects, entry.now)


def test_a_taped_run_and_the_run_itself_are_the_same_picture(tmp_path: Path) -> None:
    pipeline, tape = small_pipeline(), Tape()
    with ChromeTrace(tmp_path / "run.json") as trace:
        simulate(pipeline, small_nodes(pipeline), 7, Both(tape, trace))
    draw(tape, tmp_path / "tape.json")
    assert (tmp_path / "run.json").read_bytes() == (tmp_path / "tape.json").read_bytes()


def test_a_tape_of_the_live_driver_is_a_picture_too(tmp_path: Path) -> None:
    pipeline, tape = small_pipeline(), Tape()
    run_live(pipeline, small_nodes(pipeline), 7, tape)
    draw(tape, tmp_path / "tape.json")
    events = json.loads((tmp_path / "tape.json").read_text())["traceEvents"]
    assert {e["name"] for e in events if e["ph"] == "X"} >= {"locate/v", "read/v"}


def test_after_an_error_there_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), ChromeTrace(tmp_path / "run.json"):
        raise RuntimeError("broken off")
    assert list(tmp_path.iterdir()) == []
