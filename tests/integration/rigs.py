"""A rig that serves under load while a test uses it, and what its queries ended with."""

from collections.abc import Iterator

from benchmarks.received_answers import NotOneAnswer, ends, in_time, recovered_s
from benchmarks.rig import Rig
from benchmarks.squares import right
from schemas.records import Answer

RATE = 50.0  # queries/s, of ``PIPELINE`` of ``benchmarks.squares``
UP_PAUSE_S = 0.5  # headrace/cluster/supervisor.py: pause before the first restart


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


def each_ended_once(rig: Rig) -> None:
    """Check that every query of squares so far has exactly one answer, and the right one."""
    check_one_answer_each(rig)
    assert [
        a.id for a in rig.answers if in_time(a) and a.result != right(int(rig.asked[a.id].payload))
    ] == []


def workers_of(rig: Rig, task: str) -> list[str]:
    """Return the workers of a task by the newest plan."""
    return [lease.worker for lease in rig.plan.leases if lease.task == task]


def bring_back(rig: Rig, name: str) -> float:
    """Restart a role as `up` does; return the seconds from its death until all roles serve."""
    rig.pass_time(UP_PAUSE_S)
    rig.start(name)
    return UP_PAUSE_S + rig.until(rig.serves, f"{name} to be back")


def tell(what: str, rig: Rig, since_s: float, *more: str) -> list[Answer]:
    """Print the outcomes of the queries sent since then."""
    found = rig.answers.since(since_s)
    last_s = recovered_s(found, since_s)
    parts = [ends(found), f"the last not in time was made {last_s:.2f} s after", *more]
    print(f"\n{what}: {'; '.join(parts)}")
    return found
