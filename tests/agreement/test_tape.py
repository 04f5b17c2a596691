"""A recorded tape replays to the same effects after it was saved and loaded."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from operators.serving.worker import Worker
from schemas.effects import Effect, Event
from tests.small_world import FOLLOWED, run_live, small_nodes, small_pipeline
from tests.tape import Mismatch, Tape, replay

SEED = 11


class Silent:
    """A node without effects."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        return []


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save the tape of a run of the live driver's loop."""
    pipeline, tape = small_pipeline(), Tape()
    run_live(pipeline, small_nodes(pipeline), SEED, tape)
    path = tmp_path_factory.mktemp("tape") / "run.tape"
    tape.save(path)
    return path


def test_a_tape_of_a_live_run_replays_to_the_same_effects_in_fresh_nodes(saved: Path) -> None:
    tape = Tape.load(saved)
    assert len(tape.entries) > 1000
    replay(tape, small_nodes(small_pipeline()))


def test_a_tape_of_workers_that_follow_tables_replays(tmp_path: Path) -> None:
    pipeline, tape, path = small_pipeline(), Tape(), tmp_path / "run.tape"
    run_live(pipeline, small_nodes(pipeline), SEED, tape, FOLLOWED)
    tape.save(path)
    replay(Tape.load(path), small_nodes(pipeline))


def test_a_changed_node_fails_with_the_story_up_to_the_first_difference(saved: Path) -> None:
    pipeline = small_pipeline()
    nodes = small_nodes(pipeline)
    # This worker predicts almost the whole deadline for a batch and drops its queries.
    nodes["w1"] = Worker("w1", pipeline, "emulated", incarnation=0.0, latency=lambda v, n: 0.055)
    with pytest.raises(Mismatch) as caught:
        replay(Tape.load(saved), nodes)
    story = str(caught.value)
    assert "w1 received Woke()" in story
    assert "effect 1 on the tape: Infer(job=1, variant='read/v'" in story
    assert "effect 1 of this node: Send(topic='outputs'" in story
    assert "would finish" in story
    assert "before it, w1 received:" in story
    assert "Loaded(variant='read/v'" in story


def test_a_missing_effect_is_reported_as_none(saved: Path) -> None:
    nodes = {**small_nodes(small_pipeline()), "ingress": Silent()}
    with pytest.raises(Mismatch, match="effect 1 of this node: None"):
        replay(Tape.load(saved), nodes)


def test_a_tape_of_a_node_that_was_not_given_is_refused(saved: Path) -> None:
    with pytest.raises(Mismatch, match="node 'ingress', which was not given"):
        replay(Tape.load(saved), {})
