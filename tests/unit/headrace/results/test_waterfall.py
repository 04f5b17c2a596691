"""``headrace explain``: the waterfall of one query from its Answer."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.client.find_answer import answer_of, answer_that_ended, answer_with_id
from headrace.client.formats import read_answer
from headrace.results.waterfall import (
    KAFKA,
    QUEUE,
    RUN,
    Fate,
    WaterfallStage,
    WaterfallStep,
    explained,
)
from headrace.results.waterfall_text import waterfall_lines
from schemas.codec.json_form import answer_to_json
from schemas.codec.single_object import encode
from schemas.enumerations import ReasonCode
from schemas.records import ANSWERED, DROPPED, REFUSED, Answer, Hop, Origin
from tests.builders import an_end

MADE_S = 1_780_000_000.0
DUE_MS = 500.0


def a_hop(task: str, received_ms: float, started_ms: float, finished_ms: float, **more: Any) -> Hop:
    given = {"variant": "v", "worker": "cpu-0", "epoch": 3, "batch": 1} | more
    return Hop(
        task=task,
        received_s=MADE_S + received_ms / 1e3,
        started_s=MADE_S + started_ms / 1e3,
        finished_s=MADE_S + finished_ms / 1e3,
        **given,
    )


def an_answer(answered_ms: float, paths: Sequence[Sequence[Hop]], **more: Any) -> Answer:
    ends = tuple(an_end(ANSWERED, path[-1].task) for path in paths if path)
    given: dict[str, Any] = {"outcome": ANSWERED, "result": "x", "ends": ends, "epoch": 3} | more
    return Answer(
        id="q",
        origin=Origin(2, 1234),
        created_s=MADE_S,
        deadline_s=MADE_S + DUE_MS / 1e3,
        answered_s=MADE_S + answered_ms / 1e3,
        paths=tuple(tuple(path) for path in paths),
        **given,
    )


def rounded(stages: Sequence[WaterfallStage]) -> list[list[tuple[str, float, float]]]:
    return [
        [(s.name, round(s.took_ms, 3), round(s.slack_ms, 3)) for s in stage.steps]
        for stage in stages
    ]


LOCATE = a_hop("locate", 10, 12, 30)
CHAIN = an_answer(60, [[LOCATE, a_hop("read", 33, 40, 55)]])


def test_every_stretch_of_a_query_is_a_step_and_they_add_up() -> None:
    story = explained(CHAIN)
    assert rounded(story.stages) == [
        [("Kafka, ingress", 10, 490), ("queue", 2, 488), ("run", 18, 470)],
        [("Kafka", 3, 467), ("queue", 7, 460), ("run", 15, 445)],
    ]
    assert (round(story.last.took_ms, 3), round(story.last.slack_ms, 3)) == (5, 440)
    assert (story.fates, story.notes) == ((Fate(ANSWERED, "read", "", 1),), ())


def test_items_of_one_batch_are_one_stage_with_the_wait_of_the_longest() -> None:
    reads = [a_hop("read", at, 40, 55, batch=5) for at in (36, 33, 34)]
    stages = explained(an_answer(60, [[LOCATE, read] for read in reads])).stages
    assert [(s.task, s.batches, s.branches, s.batch) for s in stages] == [
        ("locate", 1, 3, (1, 1)),
        ("read", 1, 3, (5, 5)),
    ]
    assert rounded(stages)[1] == [("Kafka", 3, 467), ("queue", 7, 460), ("run", 15, 445)]


def twenty() -> Answer:
    reads = [
        a_hop("read", 33, 40 + 10 * n, 50 + 10 * n, worker=f"cpu-{n % 5}", batch=1 + n % 2)
        for n in range(20)
    ]
    return an_answer(260, [[LOCATE, read] for read in reads])


def test_twenty_batches_fold_into_the_last_with_a_word_on_the_others() -> None:
    folded = explained(twenty()).stages[1]
    assert (folded.batches, folded.branches, folded.batch) == (20, 20, (1, 2))
    assert folded.workers == ("cpu-0", "cpu-1", "cpu-2", "cpu-3", "cpu-4")
    assert (round(folded.first_done_ms), round(folded.steps[-1].to_ms)) == (50, 240)
    lines = [line.plain for line in waterfall_lines(explained(twenty()), "p", 90)]
    assert len(lines) == 16
    assert (
        "read/v on 5 workers, plan 3, 20 batches of 1-2 (first done 50.0), for 20 branches" in lines
    )


def test_why_a_batch_was_released_stands_with_it_and_as_a_count_where_they_are_folded() -> None:
    reads = [
        a_hop("read", 33, 40 + n, 50 + n, batch=4, released="idle" if n == 5 else "full")
        for n in range(6)
    ]
    locate = a_hop("locate", 10, 12, 30, released="idle")
    story = explained(an_answer(260, [[locate, read] for read in reads]))
    assert [stage.released for stage in story.stages] == [
        (("idle", 1),),
        (("full", 5), ("idle", 1)),
    ]
    assert [line.plain for line in waterfall_lines(story, "p", 120) if ", plan " in line.plain][
        1:
    ] == [
        "locate/v on cpu-0, plan 3, a batch of 1 (idle), for 6 branches",
        "read/v on cpu-0, plan 3, 6 batches of 4 (5 full, 1 idle; first done 50.0), for 6 branches",
    ]
    assert story.as_json()["stages"][1]["released"] == {"full": 5, "idle": 1}


def test_all_batches_are_shown_to_whoever_asks() -> None:
    assert len(explained(twenty(), shown=100).stages) == 21


def test_branches_that_differ_only_in_time_are_shown_as_one_outcome() -> None:
    ends = (
        an_end(ANSWERED, "read"),
        an_end(DROPPED, "read", "read/v would finish 12 ms after the deadline"),
        an_end(DROPPED, "read", "read/v would finish 3.5 ms after the deadline"),
    )
    answer = an_answer(60, [CHAIN.paths[0], [LOCATE], [LOCATE]], ends=ends, incomplete=True)
    story = explained(answer)
    assert story.fates == (
        Fate(ANSWERED, "read", "", 1),
        Fate(
            DROPPED,
            "read",
            "read/v would finish 12 ms after the deadline",
            2,
            ReasonCode.PAST_SAVING,
        ),
    )
    assert [fate["reason_code"] for fate in story.as_json()["fates"]] == ["none", "past_saving"]
    last = [line.plain for line in waterfall_lines(story, "p", 80)][-2:]
    assert last == [
        "1 branch answered at read",
        "2 branches dropped at read: read/v would finish 12 ms after the deadline",
    ]


def test_a_refused_query_has_no_stages_and_says_who_refused_it() -> None:
    answer = an_answer(4, [], outcome=REFUSED, reason="over capacity", task="ingress", epoch=0)
    lines = [line.plain for line in waterfall_lines(explained(answer), "p", 80)]
    assert lines[:2] == [
        "q of p: refused at ingress after 4.0 ms, 496.0 ms before its deadline: over capacity",
        "made 2026-05-28 20:26:40.000 UTC as query 2-1234, due 500.0 ms later, no plan",
    ]
    assert lines[-1].startswith("  until answered        0.0      4.0    496.0 ····")


def test_clocks_that_differ_are_noted_where_a_step_ends_before_it_begins() -> None:
    answer = an_answer(60, [[LOCATE, a_hop("read", 25, 40, 55, worker="far-0")]])
    assert explained(answer).notes == (
        "read/v on far-0: Kafka took -5.0 ms, so the clocks of two machines differ; "
        "`headrace doctor` measures the skew",
    )


def test_the_waterfall_is_drawn_to_scale() -> None:
    lines = [line.plain for line in waterfall_lines(explained(CHAIN), "postcode", 106)]
    assert lines == [
        "q of postcode: answered after 60.0 ms, 440.0 ms before its deadline",
        "made 2026-05-28 20:26:40.000 UTC as query 2-1234, due 500.0 ms later, plan 3",
        'result: "x"',
        "",
        "ms                       at     took    slack 0 to 60.0 ms",
        "made                    0.0             500.0",
        "locate/v on cpu-0, plan 3, a batch of 1",
        "  Kafka, ingress        0.0     10.0    490.0 ··········",
        "  queue                10.0      2.0    488.0           ░░",
        "  run                  12.0     18.0    470.0             ██████████████████",
        "read/v on cpu-0, plan 3, a batch of 1",
        f"  Kafka                30.0      3.0    467.0 {' ' * 30}···",
        f"  queue                33.0      7.0    460.0 {' ' * 33}░░░░░░░",
        f"  run                  40.0     15.0    445.0 {' ' * 40}███████████████",
        "answer",
        f"  Kafka, egress        55.0      5.0    440.0 {' ' * 55}·····",
    ]


def test_a_deadline_that_was_missed_is_marked() -> None:
    lines = [
        line.plain
        for line in waterfall_lines(explained(an_answer(1000, CHAIN.paths, late=True)), "p", 96)
    ]
    assert lines[0] == "q of p: late after 1000.0 ms, 500.0 ms after its deadline"
    assert lines[4].endswith("0 to 1000.0 ms, deadline at |")
    assert lines[7].endswith(" 490.0 ·" + " " * 24 + "|")


milliseconds = st.floats(-50, 5_000)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    def hop(depth: int) -> Hop:
        times = sorted(draw(st.lists(milliseconds, min_size=3, max_size=3)))
        worker = draw(st.sampled_from(["cpu-0", "cpu-1"]))
        return a_hop(f"t{depth}", *times, worker=worker, batch=draw(st.integers(1, 64)))

    paths = [
        [hop(depth) for depth in range(draw(st.integers(0, 3)))]
        for _ in range(draw(st.integers(0, 12)))
    ]
    return an_answer(draw(milliseconds), paths)


@given(answers(), st.integers(60, 200), st.integers(1, 30))
def test_waterfall_keeps_every_branch_with_any_clock_times(
    answer: Answer, width: int, shown: int
) -> None:
    story = explained(answer, shown)
    assert sum(s.branches for s in story.stages) == sum(len(path) for path in answer.paths)
    assert {step.kind for s in story.stages for step in s.steps} <= {KAFKA, QUEUE, RUN}
    waterfall = [line.plain for line in waterfall_lines(story, "p", width)][4:]
    bars = [line for line in waterfall if line.startswith("  ")]
    assert all(len(line) <= width for line in bars)
    json.dumps(story.as_json(), allow_nan=False)


class Record:
    def __init__(self, key: bytes, value: bytes) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value


@pytest.mark.parametrize("form", [encode, answer_to_json])
@pytest.mark.parametrize(("name", "is_it"), [("q", True), ("2-1234", True), ("2-123", False)])
def test_a_query_is_found_by_id_or_by_its_place_on_the_input(
    form: Any, name: str, is_it: bool
) -> None:
    found = answer_of(Record(b"q", form(CHAIN)), name, read_answer)  # type: ignore[arg-type]
    assert found == (CHAIN if is_it else None)


def test_a_caller_gets_the_answer_of_its_id_and_none_that_is_at_such_a_place() -> None:
    place, mine = replace(CHAIN, id="another"), replace(CHAIN, id="2-1234", origin=Origin(0, 7))
    found = [
        answer_with_id(Record(each.id.encode(), encode(each)), "2-1234", read_answer)  # type: ignore[arg-type]
        for each in (place, mine)
    ]
    assert found == [None, mine]


def test_what_is_no_answer_is_passed_over() -> None:
    garbage: Any = Record(b"q", b"garbage")
    assert answer_of(garbage, "q", read_answer) is None
    assert answer_with_id(garbage, "q", read_answer) is None
    assert answer_that_ended(garbage, None, read_answer) is None


@pytest.mark.parametrize(
    ("change", "end", "is_it"),
    [
        ({}, None, True),
        ({}, "answered", True),
        ({}, "late", False),
        ({"late": True}, "late", True),
        ({"late": True}, "answered", False),
        ({"incomplete": True}, "dropped", True),
        ({"outcome": "failed"}, "failed", True),
        ({"outcome": "failed"}, None, True),
    ],
)
def test_an_answer_is_found_by_how_it_ended(
    change: dict[str, Any], end: str | None, is_it: bool
) -> None:
    answer = replace(CHAIN, **change)
    record: Any = Record(b"q", encode(answer))
    assert answer_that_ended(record, end, read_answer) == (answer if is_it else None)


def test_a_step_knows_its_length() -> None:
    assert WaterfallStep(kind=RUN, name="run", from_ms=3, to_ms=8, slack_ms=0).took_ms == 5


def test_rerouted_items_are_shown_with_the_reason_of_the_first() -> None:
    late = a_hop("locate", 10, 12, 30, rerouted="slot 5 instead of 3: 4 ms over the budget")
    read = a_hop("read", 33, 40, 55)
    story = explained(an_answer(60, [[LOCATE, read], [late, read], [late, read]]))
    assert story.notes == (
        "2 items of locate/v rerouted: slot 5 instead of 3: 4 ms over the budget",
    )
