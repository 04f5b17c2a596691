"""A recorded tape, saved and loaded, replays to the same effects."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from operators.worker import Worker
from schemas.effects import (
    Arrived,
    Assign,
    Done,
    Effect,
    Event,
    Infer,
    Inferred,
    Send,
    Solve,
    Solved,
    Woke,
)
from schemas.records import Garbled
from streams.observers import Mismatch, Tape, TapeError, replay
from tests.builders import a_plan, a_work
from tests.small_world import run_live, small_nodes, small_pipeline

SEED = 11


class Odd:
    """What no tape can hold."""


class Silent:
    """A node that asks for nothing."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        return []


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tape of a run of the live driver's loop."""
    pipeline, tape = small_pipeline(), Tape()
    run_live(pipeline, small_nodes(pipeline), SEED, tape)
    path = tmp_path_factory.mktemp("tape") / "run.tape"
    tape.save(path)
    return path


def test_a_tape_of_a_live_run_replays_to_the_same_effects_in_fresh_nodes(saved: Path) -> None:
    tape = Tape.load(saved)
    assert len(tape.entries) > 1000
    replay(tape, small_nodes(small_pipeline()))


def test_a_changed_node_fails_with_the_story_up_to_the_first_difference(saved: Path) -> None:
    pipeline = small_pipeline()
    nodes = small_nodes(pipeline)
    # This one believes that a batch takes nearly all the time there is, and drops what it gets.
    nodes["w1"] = Worker("w1", pipeline, "emulated", incarnation=0.0, latency=lambda v, n: 0.055)
    with pytest.raises(Mismatch) as caught:
        replay(Tape.load(saved), nodes)
    story = str(caught.value)
    assert "w1 was told Woke()" in story
    assert "effect 1 on the tape: Infer(job=1, variant='read/v'" in story
    assert "effect 1 of this node: Send(topic='outputs'" in story
    assert "would end" in story
    assert "before it, w1 was told:" in story
    assert "Loaded(variant='read/v'" in story


def test_a_node_that_falls_silent_is_told_from_one_that_asks_for_more(saved: Path) -> None:
    nodes = {**small_nodes(small_pipeline()), "ingress": Silent()}
    with pytest.raises(Mismatch, match="effect 1 of this node: None"):
        replay(Tape.load(saved), nodes)


def test_a_tape_of_a_node_that_was_not_given_is_refused(saved: Path) -> None:
    with pytest.raises(Mismatch, match="node 'ingress', which was not given"):
        replay(Tape.load(saved), {})


def test_every_kind_of_value_comes_back_from_a_file(tmp_path: Path) -> None:
    tape = Tape()
    outputs = (None, b"\x00", np.float32(0.5), {"read": [b"a", 1]}, (1, [2.5]), "text")
    tape.saw("w", Inferred(1, outputs, 0.5, 1.0), [Infer(2, "read/v", (b"x", [1, "y"]))], 1.0)
    tape.saw("w", Arrived(a_work(3), "work.read", 0, 7, 0.25), [Send("outputs", a_work(3), 1)], 2.0)
    garbled = Garbled(b"\xff", "no Avro", (("h", b"v"),), "id")
    tape.saw("w", Arrived(garbled, "queries", 1, 2, 0.5), [], 3.0)
    tape.saw("w", Woke(), [Assign("outputs", (0, 1), done=(Done(0, 4, "0:4"),))], 4.0)
    tape.saw("c", Solved(1, a_plan()), [Solve(2, "greedy", {"devices": 3})], 5.0)
    tape.save(tmp_path / "all.tape")
    assert Tape.load(tmp_path / "all.tape").entries == tape.entries


def test_arrays_and_errors_come_back_with_what_can_be_seen_of_them(tmp_path: Path) -> None:
    tape = Tape()
    array = np.arange(6, dtype=">i2").reshape(2, 3)[:, ::2]
    tape.saw("w", Inferred(1, (array, KeyError(), ValueError("no")), 0.5, 1.0), [], 1.0)
    tape.save(tmp_path / "arrays.tape")
    event = Tape.load(tmp_path / "arrays.tape").entries[0].event
    assert isinstance(event, Inferred)
    found, unnamed, named = event.outputs
    assert (found.dtype, found.tolist()) == (array.dtype, array.tolist())
    assert (str(unnamed), str(named)) == ("KeyError", "no")


def test_a_value_without_a_form_is_refused_by_its_type(tmp_path: Path) -> None:
    tape = Tape()
    tape.saw("w", Inferred(1, (Odd(),), 0.5, 1.0), [], 1.0)
    with pytest.raises(TapeError, match=r"entry 1 cannot be kept: Odd has no form on a tape"):
        tape.save(tmp_path / "odd.tape")


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.tape"
    tape = Tape()
    tape.saw("w", Woke(), [], 1.0)
    tape.save(path)
    path.write_text(path.read_text() + '{"node": "w"}\n')
    with pytest.raises(TapeError, match=r"broken\.tape:2 is not a line of a tape"):
        Tape.load(path)
