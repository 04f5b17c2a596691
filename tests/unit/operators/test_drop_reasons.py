"""Reasons: the sentences that nodes write, and the classes that metrics count."""

import pytest

from operators.drop_reasons import (
    CLASSES,
    OVER_CAPACITY,
    PAUSED,
    classed,
    no_way_on,
    no_worker,
    past_saving,
    read_late,
    rerouted,
    too_late_for_rest,
    unfinished,
    would_overrun,
)
from schemas.records import DROPPED, FAILED, REFUSED


@pytest.mark.parametrize(
    ("outcome", "task", "reason", "wanted"),
    [
        (DROPPED, "read", past_saving("read/forest", 0.012), "past_saving"),
        (DROPPED, "read", would_overrun("read/forest", 0.012), "over_budget"),
        (DROPPED, "locate", too_late_for_rest("locate/net", 0.012), "no_way_on"),
        (DROPPED, "locate", no_way_on("locate/net", "read", 0.012, 0.02), "no_way_on"),
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
    assert would_overrun("read/vit", 0.012) == "read/vit would be 12 ms over the budget of its task"
    assert too_late_for_rest("locate/net", 0.012) == (
        "locate/net would be done 12 ms too late for what is behind it"
    )
    assert no_way_on("locate/net", "read", 0.012, 0.02) == (
        "locate/net took 12 ms more than its budget, and no worker of 'read' with room can make up "
        "for it; 20 ms were left"
    )
    assert rerouted(3, 5, 0.012) == "slot 5 in place of 3: 12 ms over the budget of its task"
