"""Schedules of sessions, some of which have a bound device."""

from control.controller.session_schedules import ScheduleProblem, SessionSchedules
from control.policies.solvers import SCHEDULE, solve
from control.problem.seats import Seat, bound_device
from control.sessions.session_book import SessionBook
from schemas.effects import Solve, Solved
from schemas.enumerations import SessionState
from schemas.pipeline import Policy
from schemas.records import Session, SessionChoice
from tests.session_world import TASKS, a_session_pipeline, a_space

AT_HAND = SessionChoice(
    settings={"scan": "scan/v", "read": "read/v"}, tiers={"scan": "handheld", "read": "cloud"},
    quarters={"scan": 0, "read": 1}, latency_s=0.3, accuracy=0.9, usd_per_h=0.05,
)  # fmt: skip


def seats(tier: str, *devices: str, tasks: tuple[str, ...] = TASKS) -> tuple[Seat, ...]:
    return tuple(
        Seat(worker=f"{each}-{task}", device=each, tier=tier, task=task, slot=number)
        for number, each in enumerate(devices)
        for task in tasks
    )


def served(*handhelds: str) -> dict[str, str]:
    """Return the device of each of three sessions in a schedule that gives it a plan."""
    space = a_space()
    book, schedules = SessionBook(a_session_pipeline(), space), SessionSchedules(space)
    for name in ("cam-1", "cam-2", "cam-3"):
        book.open(
            Session(
                id=name, pipeline="p", state=SessionState.OPENING, slo_s=0.5, samples="workload@0"
            ),
            0.0,
        )
        book.planned(name, (AT_HAND,), 0.0)
    there = (*seats("cloud", "cloud-0"), *seats("handheld", *handhelds, tasks=("scan",)))
    book.review(there, {}, {}, 0.0)
    (asked,) = schedules.begin(book, Policy(name="compass", kind="compass"), 0.0)
    assert isinstance(asked, Solve)
    assert isinstance(asked.problem, ScheduleProblem)
    schedules.solved(Solved(asked.job, solve(SCHEDULE, asked.problem)), book, 0.1)
    book.review(there, {}, {}, 0.1)
    return {plan.session: plan.stage("scan").device for plan in book.plans}


def test_a_session_is_scheduled_onto_the_device_that_is_bound_to_it() -> None:
    bound = bound_device("handheld", "cam-3")
    found = served("handheld-0", bound)
    assert found.pop("cam-3") == bound
    assert list(found.values()) == ["handheld-0"]  # one of the other two


def test_session_without_a_bound_device_gets_no_device_bound_to_another() -> None:
    others = [bound_device("handheld", name) for name in ("cam-2", "cam-8", "cam-9")]
    assert served(*others) == {"cam-2": others[0]}
