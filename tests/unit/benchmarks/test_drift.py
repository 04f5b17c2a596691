"""The figures of ``python -m benchmarks.drift``."""

import math

from benchmarks.drift import scored
from schemas.records import ANSWERED, REFUSED, Answer, Origin


def an_answer(name: str, result: str = "12", outcome: str = ANSWERED, late: bool = False) -> Answer:
    return Answer(
        id=name, origin=Origin(0, 0), outcome=outcome, result=result, created_s=0.0,
        deadline_s=1.0, answered_s=2.0 if late else 0.5, late=late, epoch=1,
    )  # fmt: skip


def test_accuracy_of_answers_in_time_stands_beside_the_share_of_queries_that_have_one() -> None:
    truths = dict.fromkeys("abcd", "12")
    answers = [
        an_answer("a"),
        an_answer("b", "13"),
        an_answer("c", "99", late=True),
        an_answer("d", outcome=REFUSED),
    ]
    assert scored(answers, truths) == (0.75, 0.5)


def test_nothing_has_no_accuracy() -> None:
    assert all(map(math.isnan, scored([], {})))
