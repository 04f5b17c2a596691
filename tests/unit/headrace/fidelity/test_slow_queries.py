"""The slowest queries of a live run."""

from headrace.fidelity.slow_queries import slowest
from schemas.records import ANSWERED, DROPPED, Answer, Hop, Origin


def a_hop(task: str, received_s: float, finished_s: float) -> Hop:
    return Hop(
        task=task, variant="v", worker="cpu-0", epoch=1, received_s=received_s,
        started_s=received_s + 0.25, finished_s=finished_s, batch=2,
    )  # fmt: skip


def an_answer(
    number: int, took_s: float, *paths: tuple[Hop, ...], outcome: str = ANSWERED
) -> Answer:
    return Answer(
        id=f"q-{number}", origin=Origin(0, number), outcome=outcome, created_s=float(number),
        deadline_s=number + 9.0, answered_s=number + took_s, paths=paths,
    )  # fmt: skip


def test_the_slowest_ones_are_kept_in_order_with_the_part_that_ended_last() -> None:
    first = a_hop("locate", 11.0, 11.5)
    long = (first, a_hop("read", 12.0, 13.0))
    answers = [
        an_answer(12, 5.0, outcome=DROPPED),
        an_answer(11, 0.5, (first,)),
        an_answer(10, 3.25, (first, a_hop("read", 11.75, 12.5)), long),
    ]
    step = {"variant": "v", "worker": "cpu-0", "batch": 2}
    assert slowest(answers, 10.0, 2) == [
        {
            "at_s": 0.0, "ms": 3250.0, "outcome": ANSWERED,
            "steps": [
                {"task": "locate", **step, "received_ms": 1000.0, "started_ms": 1250.0,
                 "finished_ms": 1500.0},
                {"task": "read", **step, "received_ms": 2000.0, "started_ms": 2250.0,
                 "finished_ms": 3000.0},
            ],
        },
        {"at_s": 2.0, "ms": 5000.0, "outcome": DROPPED, "steps": []},
    ]  # fmt: skip
