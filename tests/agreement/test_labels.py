"""The scorer counts the same labels identically under the live driver and in a simulation."""

from collections.abc import Sequence

import pytest

from operators.scoring.scorer import Scorer, exact_match
from schemas.codec.single_object import decode
from schemas.effects import ACCURACY, LABELS, Node
from schemas.pipeline import Labels, Pipeline
from schemas.records import Label, MeasuredAccuracy
from tests.small_world import Input, run_live, simulate, small_nodes, small_pipeline
from tests.tape import Tape

PIPELINE = small_pipeline(labels=Labels())
SEED = 7


def nodes() -> dict[str, Node]:
    assert PIPELINE.labels is not None
    scorer = Scorer(
        "scorer", PIPELINE, PIPELINE.labels, exact_match, incarnation=0.0, answer_slots=range(4),
        label_slots=range(1),
    )  # fmt: skip
    return {**small_nodes(PIPELINE), "scorer": scorer}


def labels() -> tuple[Input, ...]:
    """Return labels of every second query, one in four correct; some arrive before the answer."""
    return tuple(
        (0.4 + 0.01 * number, LABELS, 0,
         Label(id=f"q{number}", right=float(number % 8 == 0), of=1.0))
        for number in range(0, 200, 2)
    )  # fmt: skip


def last(measured: Sequence[object]) -> MeasuredAccuracy:
    found = measured[-1]
    assert isinstance(found, MeasuredAccuracy)
    return found


def test_both_drivers_measure_the_same_accuracy() -> None:
    simulated = simulate(PIPELINE, nodes(), SEED, Tape(), labels())
    here = last([record for record, _ in simulated.written(ACCURACY)[0]])
    transport = run_live(PIPELINE, nodes(), SEED, Tape(), labels())
    there = last([decode(fetched.value or b"") for fetched in transport.log("p.accuracy")])
    assert here.rows == there.rows
    assert here.counts == there.counts
    assert here.counts["labels"] == 100
    assert 0 < sum(row.queries for row in here.rows) == here.counts["scored"] < 100
    assert {row.path for row in here.rows} == {"locate/v", "locate/v > read/v"}


@pytest.mark.thorough
def test_a_scorer_changes_no_effect_of_the_others() -> None:
    def others(pipeline: Pipeline, made: dict[str, Node], more: tuple[Input, ...]) -> list[object]:
        tape = Tape()
        simulate(pipeline, made, SEED, tape, more)
        return [entry for entry in tape.entries if entry.node in small_nodes(pipeline)]

    assert others(PIPELINE, nodes(), labels()) == others(PIPELINE, small_nodes(PIPELINE), ())
