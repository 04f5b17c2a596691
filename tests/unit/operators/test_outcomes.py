"""operators/outcomes.py: the one outcome of a query, and the cause of a miss."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.drop_reasons import CLASSES
from operators.outcomes import LATE, OUTCOMES, cause_of, missed_at, outcome_of, tight, unpromised
from schemas.records import ANSWERED, DROPPED, FAILED, REFUSED, Answer
from tests.builders import a_hop, an_answer, an_end


@pytest.mark.parametrize(
    ("marks", "outcome"),
    [
        ({}, ANSWERED),
        ({"late": True}, LATE),
        ({"incomplete": True}, DROPPED),
        ({"incomplete": True, "late": True}, DROPPED),
        ({"outcome": DROPPED}, DROPPED),
        ({"outcome": FAILED}, FAILED),
        ({"outcome": REFUSED}, REFUSED),
    ],
)
def test_incomplete_is_dropped_before_late_is_late(marks: dict[str, Any], outcome: str) -> None:
    assert outcome_of(an_answer(**marks)) == outcome


def test_without_an_answer_a_query_is_lost() -> None:
    assert outcome_of(None) == "lost"


@pytest.mark.parametrize(
    ("way", "cause"), [(FAILED, "operator"), (DROPPED, "other"), (ANSWERED, "other")]
)
def test_the_cause_of_an_incomplete_answer_is_that_of_its_worst_branch(
    way: str, cause: str
) -> None:
    part = an_answer(
        incomplete=True, late=True, task="read", reason="r", ends=(an_end(way, "", "r"),)
    )
    assert (outcome_of(part), missed_at(part), cause_of(part)) == (DROPPED, "read", cause)
    assert missed_at(an_answer(outcome=FAILED)) == "egress"  # no task ended it


@pytest.mark.parametrize(
    ("finished_s", "task"),
    [
        ({}, "egress"),
        ({"locate": 0.4, "read": 0.5}, "egress"),  # at its deadline it was in time
        ({"locate": 0.4, "read": 0.6}, "read"),
        ({"read": 0.7, "locate": 0.6}, "locate"),
    ],
)
def test_a_late_query_missed_at_the_first_task_that_ended_past_its_deadline(
    finished_s: dict[str, float], task: str
) -> None:
    path = tuple(a_hop(task=each, finished_s=at) for each, at in finished_s.items())
    assert missed_at(an_answer(late=True, deadline_s=0.5, paths=(path,))) == task


@given(
    st.builds(
        an_answer,
        outcome=st.sampled_from((ANSWERED, DROPPED, FAILED, REFUSED)),
        late=st.booleans(),
        incomplete=st.booleans(),
        task=st.sampled_from(("", "read", "egress")),
    )
)
def test_whatever_the_answer_it_has_one_outcome_and_a_cause_unless_answered(
    answer: Answer,
) -> None:
    assert outcome_of(answer) in OUTCOMES
    assert (cause_of(answer) in CLASSES) == (outcome_of(answer) != ANSWERED)


@pytest.mark.parametrize(
    ("slo_s", "allowed_s", "hopeless"),
    [(1.0, 0.951, False), (1.0, 0.949, True), (0.03, 0.021, False), (0.03, 0.019, True)],
)
def test_a_deadline_stamped_an_slo_ahead_by_a_client_was_promised(
    slo_s: float, allowed_s: float, hopeless: bool
) -> None:
    late = an_answer(late=True, created_s=5.0, deadline_s=5.0 + allowed_s)
    assert unpromised(late, slo_s) is hopeless


@pytest.mark.parametrize(
    ("answered_s", "late_in_its_time"), [(10.0, False), (10.7, False), (10.8, True)]
)
def test_an_answer_is_tight_in_the_last_quarter_of_its_time(
    answered_s: float, late_in_its_time: bool
) -> None:
    answer = an_answer(created_s=10.0, deadline_s=11.0, answered_s=answered_s)
    assert tight(answer) is late_in_its_time
