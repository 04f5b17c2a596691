"""The file form of a tape. Replays: tests/agreement/test_tape.py."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from schemas.codec.single_object import _WRITERS
from schemas.effects import (
    Arrived,
    Assign,
    Deliver,
    Done,
    Effect,
    Event,
    Infer,
    Inferred,
    Send,
    Solve,
    Solved,
    Unload,
    Woke,
)
from schemas.records import Completion, Garbled, Origin
from tests.builders import a_plan, a_work
from tests.tape import _RECORDS, _SPELLED, Tape, TapeError


class Odd:
    """An object that no tape can hold."""


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


def test_dispatching_and_edge_come_back_from_a_file(tmp_path: Path) -> None:
    tape = Tape()
    ended = Completion(
        query_id="q", origin=Origin(0, 1), slot=0, worker="w", type="gpu", setting="read/v", size=1,
        queued_s=0.0, run_s=0.1, outcome="answered",
    )  # fmt: skip
    passed = Deliver("w", Arrived(a_work(3), "work.read", 0, 7, 0.25))
    tape.saw("ingress-0", Arrived(ended, "completions", 0, 0, 0.5), [passed, Unload("read/v")], 1.0)
    tape.save(tmp_path / "edge.tape")
    assert Tape.load(tmp_path / "edge.tape").entries == tape.entries


def test_every_event_effect_and_record_has_a_form() -> None:
    assert {*get_args(Event), *get_args(Effect)} <= {*_SPELLED.values()}
    assert {*_WRITERS} <= {*_RECORDS}


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
