"""The live driver and the simulator produce the same effects."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from schemas.effects import RESULTS, Infer
from schemas.records import Answer
from tests.small_world import FOLLOWED, UNTIL_S, run_live, simulate, small_nodes, small_pipeline
from tests.tape import Tape, Taped

SEED = 7


def early(tape: Tape) -> list[Taped]:
    """Return the entries before the end, where one driver may stop slightly earlier than the
    other."""
    return [entry for entry in tape.entries if entry.now < UNTIL_S]


@pytest.mark.parametrize("seed", [SEED, 8, 9])
def test_live_driver_and_simulator_ask_for_the_same_effects_one_by_one(seed: int) -> None:
    pipeline = small_pipeline()
    simulated, live = Tape(), Tape()
    simulate(pipeline, small_nodes(pipeline), seed, simulated)
    run_live(pipeline, small_nodes(pipeline), seed, live)
    for number, (here, there) in enumerate(zip(early(simulated), early(live), strict=True)):
        assert here == there, f"event {number} differs with seed {seed}"


@pytest.mark.parametrize("seed", [SEED, 8])
def test_workers_that_follow_tables_produce_the_same_effects_under_both_drivers(seed: int) -> None:
    pipeline = small_pipeline()
    simulated, live = Tape(), Tape()
    simulate(pipeline, small_nodes(pipeline), seed, simulated, FOLLOWED)
    run_live(pipeline, small_nodes(pipeline), seed, live, FOLLOWED)
    for number, (here, there) in enumerate(zip(early(simulated), early(live), strict=True)):
        assert here == there, f"event {number} differs with seed {seed}"
    ran = {e.variant for t in simulated.entries for e in t.effects if isinstance(e, Infer)}
    assert ran == {"locate/v", "read/v", "read/w"}


def test_both_drivers_write_and_commit_the_same() -> None:
    pipeline = small_pipeline()
    simulated = simulate(pipeline, small_nodes(pipeline), SEED, Tape())
    transport = run_live(pipeline, small_nodes(pipeline), SEED, Tape())
    for topic in ("queries", "work.locate", "work.read", "outputs", "results"):
        slots = simulated.written(topic)
        written = {s: len(records) for s, records in slots.items()}
        assert written == Counter(fetched.slot for fetched in transport.log(f"p.{topic}"))
        committed = {s: place for (t, s), place in transport.committed.items() if t == f"p.{topic}"}
        assert simulated.committed(topic) == committed


def test_the_small_world_has_every_kind_of_outcome_and_batches_of_several_sizes() -> None:
    pipeline, tape = small_pipeline(), Tape()
    simulated = simulate(pipeline, small_nodes(pipeline), SEED, tape)
    answers = [r for log in simulated.written(RESULTS).values() for r, _ in log]
    assert len(answers) == 200
    kinds = {
        "late" if a.late else "incomplete" if a.incomplete else a.outcome
        for a in answers
        if isinstance(a, Answer)
    }
    assert kinds >= {"answered", "incomplete", "late", "dropped"}
    sizes = {len(e.values) for t in tape.entries for e in t.effects if isinstance(e, Infer)}
    assert sizes == {1, 2, 3, 4}


DIGEST = """
from hashlib import sha256
from tests.tape import Tape
from tests.small_world import simulate, small_nodes, small_pipeline
pipeline, tape = small_pipeline(), Tape()
simulate(pipeline, small_nodes(pipeline), 7, tape)
print(len(tape.entries), sha256(repr(tape.entries).encode()).hexdigest())
"""


@pytest.mark.thorough
def test_a_simulation_does_not_depend_on_process_or_hash_seed() -> None:
    def digest(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()}
        command = [sys.executable, "-c", DIGEST]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    assert digest("1") == digest("2")
