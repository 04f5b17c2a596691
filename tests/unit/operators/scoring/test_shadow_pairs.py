"""The scorer with shadows: compared pairs, and the state kept across a restart."""

from typing import Any

from msgspec.structs import replace

from control.per_query.shadowing import SHADOW, VALID_S
from operators.scoring.scorer import WRITE_S, Scorer, exact_match
from schemas.effects import ACCURACY, RESULTS, SHADOWS, Arrived, Assign, Woke
from schemas.pipeline import Labels
from schemas.records import FULL_CREDIT, Item, MeasuredAccuracy, Record, SessionPlan
from tests.builders import a_hop, a_pipeline, a_work, an_answer, an_end, arrived, sent

LABELS_ = Labels(within_s=100.0, shadow_share=1.0)
PIPELINE = a_pipeline(labels=LABELS_)
PLAN = SessionPlan(session=SHADOW, number=0, slo_s=VALID_S)
W_PATH = (a_hop(variant="w"),)


class Scoring:
    """A scorer with its last written records and committed offsets."""

    def __init__(self, earlier: MeasuredAccuracy | None = None) -> None:
        self.node = Scorer(
            "scorer", PIPELINE, LABELS_, exact_match, incarnation=0.0, answer_slots=(0,),
            label_slots=(0,), earlier=earlier, shadow_slots=(0,),
            accuracies={"read/v": 0.8, "read/w": 0.9},
        )  # fmt: skip
        self.now = 0.0
        self.done: dict[str, int] = {}

    def take(self, record: Record, topic: str, offset: int) -> None:
        event = arrived(record, offset, 0, at_s=self.now, topic=topic)
        assert isinstance(event, Arrived)
        self.node.handle(event, self.now)

    def write(self) -> MeasuredAccuracy:
        self.now += WRITE_S
        effects = self.node.handle(Woke(), self.now)
        for effect in effects:
            if isinstance(effect, Assign):
                for each in effect.done:
                    self.done[effect.topic] = each.offset
        (found,) = sent(effects, ACCURACY)
        assert isinstance(found, MeasuredAccuracy)
        return found


def an_answered(offset: int, result: Any, variant: str = "v") -> Record:
    paths = ((a_hop(variant=variant),),)
    return an_answer(offset, result=[result], paths=paths)


def a_shadow(offset: int, value: Any, **changes: Any) -> Record:
    item = Item(value=value, path=W_PATH, end=an_end("answered", "read"))
    return a_work(offset, replace(item, **changes), task="", deadline_s=VALID_S, session=PLAN)


def test_answers_and_shadows_are_compared_in_either_order() -> None:
    scoring = Scoring()
    scoring.take(an_answered(0, "x"), RESULTS, 0)
    scoring.take(a_shadow(0, "x"), SHADOWS, 0)
    scoring.take(a_shadow(1, "y"), SHADOWS, 1)
    scoring.take(an_answered(1, "z"), RESULTS, 1)
    found = scoring.write()
    (row,) = found.shadows
    assert (row.path, row.reference, row.queries, row.accuracy) == ("read/v", "read/w", 2, 0.5)
    assert row.reference_accuracy == 0.9
    assert found.shadow_counts == {"compared": 2, "same_path": 0, "failed": 0}
    (recent,) = found.recent
    assert (recent.path, recent.reference, recent.queries) == ("read/v", "read/w", 2)


def test_answer_of_the_reference_path_itself_is_not_compared() -> None:
    scoring = Scoring()
    scoring.take(an_answered(0, "x", "w"), RESULTS, 0)
    scoring.take(a_shadow(0, "x"), SHADOWS, 0)
    found = scoring.write()
    assert found.shadows == ()
    assert found.shadow_counts["same_path"] == 1


def test_a_shadow_counts_once_all_its_branches_have_ended() -> None:
    scoring = Scoring()
    scoring.take(an_answered(0, "a"), RESULTS, 0)
    half = {"credit": FULL_CREDIT // 2}
    scoring.take(a_shadow(0, "b", branch=(0, 1), **half), SHADOWS, 0)
    assert scoring.write().shadows == ()
    scoring.take(a_shadow(0, "a", branch=(0, 0), **half), SHADOWS, 1)
    (row,) = scoring.write().shadows
    assert (row.queries, row.right) == (1, 0.0)  # ["a"] is not ["a", "b"]


def test_a_shadow_that_fails_is_not_compared() -> None:
    scoring = Scoring()
    scoring.take(an_answered(0, "x"), RESULTS, 0)
    scoring.take(a_shadow(0, None, end=an_end("failed", "read", "broke")), SHADOWS, 0)
    assert scoring.write().shadow_counts["failed"] == 1


def test_a_restart_counts_no_shadow_twice() -> None:
    scoring = Scoring()
    scoring.take(an_answered(0, "x"), RESULTS, 0)
    scoring.take(a_shadow(0, "x"), SHADOWS, 0)
    before = scoring.write()
    assert scoring.done[SHADOWS] == 1
    again = Scoring(before)
    again.take(an_answered(0, "x"), RESULTS, 0)
    again.take(a_shadow(0, "x"), SHADOWS, 0)
    again.take(an_answered(1, "x"), RESULTS, 1)
    again.take(a_shadow(1, "x"), SHADOWS, 1)
    (row,) = again.write().shadows
    assert row.queries == 2
