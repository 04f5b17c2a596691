"""An hour of sessions that open and close, more than fit: none starves, and nothing is left."""

import numpy as np
import pytest

from control.controller.session_schedules import SessionSchedules
from control.policies.solvers import SCHEDULE, solve
from control.problem.seats import Seat
from control.problem.tiers import QUARTERS
from control.sessions.session_book import SessionBook
from schemas.effects import Forget, Solve, Solved
from schemas.enumerations import SessionState
from schemas.pipeline import Policy
from schemas.records import Session, SessionChoice
from tests.session_world import TASKS, a_session_pipeline, a_space

DEVICES = 4
PLAN = SessionChoice(
    settings={"scan": "scan/v@scale=1", "read": "read/v@votes=1"},
    tiers=dict.fromkeys(TASKS, "cloud"), quarters={"scan": 0, "read": QUARTERS},
)  # fmt: skip
SEATS = tuple(
    Seat(worker=f"cloud-{n}-{task}", task=task, tier="cloud", device=f"cloud-{n}", slot=n)
    for n in range(DEVICES)
    for task in TASKS
)
HELD = {seat.worker: frozenset(PLAN.settings.values()) for seat in SEATS}
POLICY = Policy(name="compass", kind="compass")
SERVES_S, HOUR_S = 60, 3600
A_MINUTE = {"light": (1.0, 1), "heavy": (3.0, 5)}  # weight, and sessions; four can serve


class Hour:
    """Sessions that open at random; each closes once it has served for a minute."""

    def __init__(self, ageing_s: float) -> None:
        self.book = SessionBook(a_session_pipeline(), a_space())
        self.book.ageing_s = ageing_s
        self.schedules = SessionSchedules(a_space())
        self.opened: dict[str, int] = {}
        self.served: dict[str, int] = {}
        self.forgotten: list[str] = []
        self._rng = np.random.default_rng(0)
        for now in range(HOUR_S):
            self._arrive(now)
            self._turn(now)
        for name in self.open:
            self.book.close(name, HOUR_S)
        for now in range(HOUR_S, HOUR_S + 60):
            self._turn(now)

    @property
    def open(self) -> list[str]:
        return [s.id for s in self.book.sessions if s.state is not SessionState.CLOSING]

    def _arrive(self, now: int) -> None:
        for name, (weight, often) in A_MINUTE.items():
            for _ in range(self._rng.poisson(often / 60)):
                asked = Session(
                    id=f"{name}-{len(self.opened)}", pipeline="p", state=SessionState.OPENING,
                    slo_s=0.5, weight=weight, samples="workload@0",
                )  # fmt: skip
                self.opened[asked.id] = now
                self.book.open(asked, now)
                self.book.planned(asked.id, (PLAN,), now)

    def _turn(self, now: int) -> None:
        for name in self.open:
            if now - self.served.get(name, now) >= SERVES_S:
                self.book.close(name, now)
        self._review(now)
        for effect in self.schedules.begin(self.book, POLICY, now):
            assert isinstance(effect, Solve)
            done = Solved(effect.job, solve(SCHEDULE, effect.problem))
            self.schedules.solved(done, self.book, now)
            self._review(now)

    def _review(self, now: int) -> None:
        for _ in range(2):  # the second one finds the settings loaded
            self.book.review(SEATS, HELD, {}, now)
        for plan in self.book.plans:
            if plan.admits:
                self.served.setdefault(plan.session, now)
        self.forgotten += [e.key for e in self.book.deletions() if isinstance(e, Forget)]

    def share(self, name: str) -> float:
        """Return the share of the light or heavy sessions that were served."""
        return len(self._waits(name)) / sum(each.startswith(name) for each in self.opened)

    def longest(self, name: str) -> int:
        """Return the longest wait of those that were served."""
        return max(self._waits(name))

    def _waits(self, name: str) -> list[int]:
        return [s - self.opened[each] for each, s in self.served.items() if each.startswith(name)]


@pytest.mark.thorough
def test_light_sessions_are_served_beside_heavy_ones_that_fill_all_devices() -> None:
    aged, ageless = Hour(ageing_s=60.0), Hour(ageing_s=1e9)
    assert ageless.share("light") < 0.1
    assert aged.share("light") > 0.3
    # A light session has the weight of a heavy one once 1 + t / 60 reaches 3 (1 + t' / 60).
    assert aged.longest("light") <= 3 * aged.longest("heavy") + 120 + SERVES_S
    for hour in (aged, ageless):
        assert (len(hour.book), hour.book.plans) == (0, ())
        assert hour.book.free == {("cloud", ""): (QUARTERS,) * DEVICES}
        assert sorted(hour.forgotten) == sorted(hour.opened)
