"""Reasons: the sentences that nodes write, and the codes sent with them."""

import pytest

from operators.drop_reasons import (
    CLASSES,
    LATE,
    OVER_CAPACITY,
    PAUSED,
    Reason,
    bad_input,
    counted_as,
    dropped,
    no_sessions,
    no_way_on,
    no_worker,
    past_saving,
    read_late,
    rerouted,
    too_late_for_rest,
    unfinished,
    would_overrun,
)
from schemas.codec.older_releases import reason_code
from schemas.enumerations import ReasonCode
from schemas.records import DROPPED, FAILED, REFUSED, End

REASONS = [
    (DROPPED, past_saving("read/forest", 0.012)),
    (DROPPED, would_overrun("read/forest", 0.012)),
    (DROPPED, too_late_for_rest("locate/net", 0.012)),
    (DROPPED, no_way_on("locate/net", "read", 0.012, 0.02)),
    (DROPPED, read_late(0.5)),
    (DROPPED, unfinished(1.25)),
    (DROPPED, no_worker("read")),
    (REFUSED, OVER_CAPACITY),
    (REFUSED, PAUSED),
    (REFUSED, no_worker("locate")),
    (REFUSED, no_sessions("locate")),
    (REFUSED, bad_input("the value is empty; it must be the payload itself")),
]


@pytest.mark.parametrize(("outcome", "reason"), REASONS)
def test_a_process_of_this_release_that_writes_release_5_is_understood(
    outcome: str, reason: Reason
) -> None:
    # HEADRACE_WRITE_RELEASE=5 omits the code: it must be inferred from the sentence alone.
    assert reason_code(outcome, "ingress", reason.text) is reason.code


def test_metrics_count_by_every_code_but_none() -> None:
    assert set(CLASSES) == {*ReasonCode, LATE} - {ReasonCode.NONE}


def test_an_end_holds_the_code_and_the_sentence() -> None:
    assert dropped("ingress", read_late(0.5)) == End(
        DROPPED, "ingress", "read 500 ms after its deadline", ReasonCode.READ_LATE
    )


@pytest.mark.parametrize(
    ("reason", "other"),
    [
        (past_saving("read/forest", 0.012), past_saving("read/forest", 0.013)),
        (no_way_on("a/b", "c", 0.1, 0.2), no_way_on("a/b", "c", 0.1, 0.3)),
        (unfinished(1.25), unfinished(1.5)),
    ],
)
def test_reasons_that_differ_by_a_time_are_counted_together(reason: Reason, other: Reason) -> None:
    assert reason.text != other.text
    assert counted_as(*reason) == counted_as(*other)


def test_reasons_given_by_operators_are_counted_by_their_text() -> None:
    said = "read/vit raised KeyError: '7'"
    assert counted_as(ReasonCode.OPERATOR, said) == said


def test_reasons_are_sentences_for_people() -> None:
    assert past_saving("read/forest", 0.012).text == (
        "read/forest would finish 12 ms after the deadline"
    )
    assert read_late(0.5).text == "read 500 ms after its deadline"
    assert unfinished(1.25).text == "incomplete 1250 ms after its creation"
    assert no_worker("locate").text == "no worker serves task 'locate'"
    assert would_overrun("read/vit", 0.012).text == (
        "read/vit would exceed the budget of its task by 12 ms"
    )
    assert too_late_for_rest("locate/net", 0.012).text == (
        "locate/net would finish 12 ms too late for the remaining tasks"
    )
    assert no_way_on("locate/net", "read", 0.012, 0.02).text == (
        "locate/net exceeded its budget by 12 ms, and no worker of 'read' with free "
        "capacity can make up for it; 20 ms were left"
    )
    assert rerouted(3, 5, 0.012) == "slot 5 instead of 3: 12 ms over the budget of its task"


def test_a_failure_of_an_older_release_is_the_operators_or_the_combine_functions() -> None:
    assert reason_code(FAILED, "read", "would end") is ReasonCode.OPERATOR
    assert reason_code(FAILED, "egress", "combine raised KeyError") is ReasonCode.COMBINE
