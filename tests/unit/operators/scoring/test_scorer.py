from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from operators.scoring import score_sums
from operators.scoring.score_sums import MOST_PATHS, OTHER, UNUSED_S, Measurements
from operators.scoring.scorer import MOST_PARTS, WRITE_S, Scorer, exact_match, score
from schemas.effects import (
    ACCURACY,
    DEAD_LETTERS,
    LABELS,
    PLANS,
    REPORTS,
    RESULTS,
    Arrived,
    Assign,
    Effect,
    Woke,
)
from schemas.pipeline import Labels
from schemas.records import Garbled, Label, MeasuredAccuracy, Record, Report
from tests.builders import a_hop, a_pipeline, a_plan, an_answer, arrived, sent

LABELLED = Labels(within_s=100.0, memory_bytes=1_000_000)
PIPELINE = a_pipeline(labels=LABELLED, slo_classes={"gold": 0.2})


class Told:
    """A scorer with its last written records."""

    def __init__(
        self, earlier: MeasuredAccuracy | None = None, judge: Any = exact_match,
        labels: Labels = LABELLED,
    ) -> None:  # fmt: skip
        self.node = Scorer(
            "scorer", PIPELINE, labels, judge, incarnation=0.0, answer_slots=(0, 1),
            label_slots=(0, 1), earlier=earlier,
        )  # fmt: skip
        self.written = earlier
        self.commits: dict[tuple[str, int], int] = {}
        self.now = 0.0

    def tell(self, record: Record, topic: str, offset: int, slot: int = 0) -> list[Effect]:
        event = arrived(record, offset, slot, at_s=self.now, topic=topic)
        return self.node.handle(event, self.now)

    def write(self) -> MeasuredAccuracy:
        self.now += WRITE_S
        effects = self.node.handle(Woke(), self.now)
        for record in sent(effects, ACCURACY):
            assert isinstance(record, MeasuredAccuracy)
            self.written = record
        for effect in effects:
            if isinstance(effect, Assign):
                for done in effect.done:
                    self.commits[effect.topic, done.slot] = done.offset
        assert self.written is not None
        return self.written


def an_answered(number: int, result: Any, **changes: Any) -> Record:
    path = ((a_hop(),),)
    return an_answer(number, **{"result": result, "paths": path, **changes})


def test_labels_before_and_after_their_answers_count_alike() -> None:
    told = Told()
    told.tell(Label(id="q0", truth="seven"), LABELS, 0)
    told.tell(an_answered(0, "seven"), RESULTS, 0)
    told.tell(an_answered(1, "six"), RESULTS, 1)
    told.tell(Label(id="q1", truth="seven"), LABELS, 1)
    (row,) = told.write().rows
    assert (row.path, row.slo_class, row.queries, row.accuracy) == ("read/v", "", 2, 0.5)
    assert row.low < 0.5 < row.high


def test_rows_are_by_path_class_and_hour() -> None:
    told = Told()
    other = ((a_hop(variant="w"),),)
    for number, changes in enumerate(
        ({}, {"paths": other}, {"slo_class": "gold"}, {"answered_s": 7300.0})
    ):
        told.tell(an_answered(number, 1, **changes), RESULTS, number)
        told.tell(Label(id=f"q{number}", right=1.0, of=1.0), LABELS, number)
    assert [(r.path, r.slo_class, r.hour_s) for r in told.write().rows] == [
        ("read/v", "", 0.0),
        ("read/v", "", 7200.0),
        ("read/v", "gold", 0.0),
        ("read/w", "", 0.0),
    ]


def test_scores_are_counted_by_session_until_it_closes() -> None:
    told = Told()
    for number, right in enumerate((1.0, 0.5, 0.0)):
        told.tell(an_answered(number, 1, session="cam"), RESULTS, number)
        told.tell(Label(id=f"q{number}", right=2 * right, of=2.0), LABELS, number)

    def counts() -> dict[str, float]:
        (report,) = [r for r in sent(told.node.handle(Woke(), told.now), REPORTS)]
        assert isinstance(report, Report)
        return {k: v for k, v in report.counts.items() if k.startswith("session/")}

    told.node.handle(Woke(), told.now)
    told.now += 1.0
    assert counts() == {
        "session/cam/labels": 3.0, "session/cam/score": 1.5, "session/cam/squares": 1.25
    }  # fmt: skip
    told.tell(a_plan(), PLANS, 0)
    told.now += 1.0
    assert counts() == {}


def test_only_complete_answers_in_time_are_scored() -> None:
    told = Told()
    told.tell(an_answered(0, "x", late=True), RESULTS, 0)
    told.tell(Label(id="q0", truth="x"), LABELS, 0)
    assert told.write().rows == ()


def test_a_label_that_comes_again_is_not_counted_again() -> None:
    told = Told()
    told.tell(an_answered(0, "x"), RESULTS, 0)
    for offset in range(3):
        told.tell(Label(id="q0", truth="x"), LABELS, offset)
    written = told.write()
    assert [row.queries for row in written.rows] == [1]
    assert (written.counts["scored"], written.counts["repeated"]) == (1, 2)


def test_hostile_labels_do_not_push_out_answers() -> None:
    told = Told()
    told.tell(an_answered(0, "x"), RESULTS, 0)
    for number in range(5000):
        told.tell(Label(id=f"nobody-{number}", truth="x" * 500), LABELS, number)
    told.tell(Label(id="q0", truth="x"), LABELS, 5000)
    written = told.write()
    assert written.counts["scored"] == 1
    assert written.counts["unmatched"] > 4000


def test_a_label_of_many_parts_does_not_overrule_all_others() -> None:
    told = Told()
    for number in range(1000):
        told.tell(an_answered(number, "x"), RESULTS, number)
        right = Label(id=f"q{number}", truth="x")
        hostile = Label(id=f"q{number}", right=0.0, of=1e9)
        told.tell(hostile if number == 7 else right, LABELS, number)
    (row,) = told.write().rows
    assert (row.queries, row.right, row.of) == (1000, 999.0, 999.0 + MOST_PARTS)
    assert row.high > 0.95


def test_a_truth_that_is_too_large_is_not_kept() -> None:
    told = Told()
    told.tell(Label(id="q0", truth="x" * (LABELLED.most_truth_bytes + 1)), LABELS, 0)
    written = told.write()
    assert written.counts["failed"] == 1
    assert "at most 15625 are kept" in written.trouble


def test_garbled_labels_are_dead_letters() -> None:
    told = Told()
    effects = told.tell(Garbled(b"{", "no JSON"), LABELS, 0)
    assert len(sent(effects, DEAD_LETTERS)) == 1
    assert told.write().counts["unreadable"] == 1


@pytest.mark.parametrize("judged", [float("nan"), 2.0, -1, "well", (3, 2), (1, 0), (1, 2, 3), None])
def test_a_judge_that_makes_no_sense_is_reported_and_counts_nothing(judged: Any) -> None:
    told = Told(judge=lambda result, truth: judged)
    told.tell(an_answered(0, "x"), RESULTS, 0)
    told.tell(Label(id="q0", truth="x"), LABELS, 0)
    written = told.write()
    assert (written.rows, written.counts["failed"]) == ((), 1)
    assert "the label of 'q0'" in written.trouble


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_judge_that_raises_ends_nothing(error: type[BaseException]) -> None:
    def judge(result: Any, truth: Any) -> float:
        raise error("no")

    told = Told(judge=judge)
    told.tell(an_answered(0, "x"), RESULTS, 0)
    told.tell(Label(id="q0", truth="x"), LABELS, 0)
    assert told.write().counts["failed"] == 1


@pytest.mark.parametrize(("judged", "wanted"), [(True, (1.0, 1.0)), (0.25, (0.25, 1.0)),
                                                ((4, 5), (4.0, 5.0))])  # fmt: skip
def test_a_judge_says_right_or_wrong_a_share_or_parts(
    judged: Any, wanted: tuple[float, float]
) -> None:
    assert score("r", Label(id="q", truth="t"), lambda result, truth: judged) == wanted


def test_an_exact_match_goes_by_the_json_form() -> None:
    assert exact_match(b"7", "Nw==")
    assert exact_match([1, {"a": 2.0}], [1.0, {"a": 2}])
    assert not exact_match("7", 7)


def test_paths_and_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_sums, "MOST_ROWS", 60)
    told = Told()
    for number in range(100):
        path = ((a_hop(variant=f"v{number}"),),)
        answer = an_answered(number, 1, paths=path, answered_s=3600.0 * (number // 50))
        told.tell(answer, RESULTS, number)
        told.tell(Label(id=f"q{number}", truth=1), LABELS, number)
    rows = told.write().rows
    assert len({row.path for row in rows}) <= MOST_PATHS + 1
    assert OTHER in {row.path for row in rows}
    assert len(rows) <= 60


def test_a_path_that_is_in_use_takes_the_place_of_one_that_no_longer_is() -> None:
    """After fifty paths in a scorer's life, those of new variants counted as "other" for good."""
    sums = Measurements()
    for number in range(MOST_PATHS):
        sums.compared(f"old{number}", "", 0.0, 1.0, 1.0, "old0", 0.9)
    sums.labelled("new", "", UNUSED_S, 1.0, 1.0)
    sums.compared("new", "", UNUSED_S + 1.0, 1.0, 1.0, "best", 0.8)
    assert [row.path for row in sums.rows()] == [OTHER]
    rows = {(row.path, row.reference): row.reference_accuracy for row in sums.shadows()}
    assert rows == {(f"old{number}", "old0"): 0.9 for number in range(MOST_PATHS)} | {
        ("new", "best"): 0.8
    }
    recent = [(row.path, row.reference) for row in sums.recent(UNUSED_S)]
    assert recent == [("new", "best"), (OTHER, "")]


def test_the_newest_answers_are_kept_of_a_bounded_number_of_paths() -> None:
    """Those of labelled shadows were kept of every path, each combination of branches one."""
    sums = Measurements()
    for number in range(1000):
        sums.note(f"p{number}", 0.0, 1.0, 1.0)
    assert len(sums.recent(0.0)) == MOST_PATHS + 1


def test_rows_of_the_newest_hour_stay_however_many_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(score_sums, "MOST_ROWS", 10)
    sums = Measurements()
    for number in range(30):
        sums.labelled("p", f"class {number}", 3600.0 * (number // 10), 1.0, 1.0)
        sums.compared("p", f"class {number}", 3600.0 * (number // 20), 1.0, 1.0, "q", None)
    assert [row.slo_class for row in sums.rows()] == [f"class {n}" for n in range(20, 30)]
    for number in range(30, 50):
        sums.labelled("p", f"class {number}", 7200.0, 1.0, 1.0)
        sums.compared("p", f"class {number}", 3600.0, 1.0, 1.0, "q", None)
    assert len(sums.rows()) == len(sums.shadows()) == 30


EVENTS = st.lists(
    st.tuples(st.sampled_from(["answer", "label", "write", "restart"]), st.integers(0, 12)),
    max_size=60,
)


@given(EVENTS)
def test_after_restarts_every_pair_is_counted_once(events: list[tuple[str, int]]) -> None:
    logs: dict[str, list[Record]] = {RESULTS: [], LABELS: []}
    told = Told()
    for what, number in events:
        if what == "answer" and not any(a.id == f"q{number}" for a in logs[RESULTS]):  # type: ignore[union-attr]
            logs[RESULTS].append(an_answered(number, number % 2))
            told.tell(logs[RESULTS][-1], RESULTS, len(logs[RESULTS]) - 1)
        elif what == "label":
            logs[LABELS].append(Label(id=f"q{number}", truth=1))
            told.tell(logs[LABELS][-1], LABELS, len(logs[LABELS]) - 1)
        elif what == "write":
            told.write()
        elif what == "restart":
            commits, told = told.commits, Told(told.written)
            told.commits = commits
            for topic, log in logs.items():
                for offset in range(commits.get((topic, 0), 0), len(log)):
                    told.tell(log[offset], topic, offset)
    answered = {a.id: a.result for a in logs[RESULTS]}  # type: ignore[union-attr]
    pairs = {label.id for label in logs[LABELS]} & set(answered)  # type: ignore[union-attr]
    rows = told.write().rows
    assert sum(row.queries for row in rows) == len(pairs)
    assert sum(row.right for row in rows) == sum(answered[name] for name in pairs)


def test_without_news_nothing_is_written() -> None:
    told = Told()
    told.tell(an_answered(0, "x"), RESULTS, 0)
    first = told.write()
    assert told.write() is first
    assert replace(first, at_s=0.0) != first


def test_reads_begin_once() -> None:
    told = Told()
    begun = [e for e in told.node.handle(Woke(), 0.0) if isinstance(e, Assign) and e.slots]
    assert [effect.topic for effect in begun] == ["plans", RESULTS, LABELS]
    assert not [e for e in told.node.handle(Woke(), 0.1) if isinstance(e, Assign) and e.slots]


def test_foreign_records_on_the_results_topic_are_passed_over() -> None:
    told = Told()
    event = Arrived(Garbled(b"x", "foreign"), RESULTS, 0, 4, 0.0)
    assert told.node.handle(event, 0.0) == []
    assert told.write().answers_upto == {"0": 5}
