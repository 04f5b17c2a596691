"""Reasons: the sentences that nodes write, and the classes that metrics count."""

import pytest

from operators.reasons import (
    CLASSES,
    OVER_CAPACITY,
    PAUSED,
    classed,
    no_worker,
    past_saving,
    read_late,
    unfinished,
)
from schemas.records import DROPPED, FAILED, REFUSED


@pytest.mark.parametrize(
    ("outcome", "task", "reason", "wanted"),
    [
        (DROPPED, "read", past_saving("read/forest", 0.012), "past_saving"),
        (DROPPED, "ingress", read_late(0.5), "read_late"),
        (DROPPED, "", unfinished(1.25), "unfinished"),
        (DROPPED, "read", "what a later release says", "other"),
        (REFUSED, "ingress", OVER_CAPACITY, "over_capacity"),
        (REFUSED, "ingress", PAUSED, "paused"),
        (REFUSED, "ingress", no_worker("locate"), "no_worker"),
        (REFUSED, "ingress", "the value is empty; it must be the payload itself", "bad_input"),
        (FAILED, "read", "read/forest raised ValueError: would end", "operator"),
        (FAILED, "egress", "combine raised KeyError: 'x'", "combine"),
    ],
)
def test_every_reason_falls_into_one_class(
    outcome: str, task: str, reason: str, wanted: str
) -> None:
    assert classed(outcome, task, reason) == wanted
    assert wanted in CLASSES


def test_reasons_are_sentences_for_people() -> None:
    assert past_saving("read/forest", 0.012) == "read/forest would end 12 ms after the deadline"
    assert read_late(0.5) == "read 500 ms after its deadline"
    assert unfinished(1.25) == "not complete 1250 ms after it was made"
    assert no_worker("locate") == "no worker serves task 'locate'"
