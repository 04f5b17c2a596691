"""A rig that serves under load while a test uses it."""

from collections.abc import Iterator

from benchmarks.received_answers import NotOneAnswer
from benchmarks.rig import Rig


def under_load(running: Rig, rate_qps: float) -> Iterator[Rig]:
    """Yield the pipeline, complete and under load for a second; restore it after the test."""
    running.until(running.serves, "every role to serve")
    running.offer(rate_qps)
    running.pass_time(1)
    yield running
    running.offer(0)
    running.start(*(name for name in running.roles if name not in running.running))


def check_one_answer_each(rig: Rig) -> None:
    """Settle, and raise ``NotOneAnswer`` unless every query so far has exactly one answer."""
    rig.settle()
    rig.answers.check_single()
    found, asked = (
        {a.id: a.origin for a in rig.answers},
        {n: q.origin for n, q in rig.asked.items()},
    )
    if found != asked:
        raise NotOneAnswer(f"answers and queries differ: {sorted(found.items() ^ asked.items())}")
