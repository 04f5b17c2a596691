"""How long the controller takes to decide when sessions open and close beside many that serve.

    python -m benchmarks.session_decisions --sessions 1000 --rounds 200

Every round closes a session that serves and opens two, which contend for the freed quarters. The
time of a round is that of the controller's own part (states, devices, the plans for the nodes) and
of the schedule, which the planners' process solves. Devices are as many as the sessions fill.
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np

from control.controller.session_schedules import SessionSchedules
from control.policies.solvers import SCHEDULE, solve
from control.problem.seats import Seat
from control.problem.session_space import SessionSpace
from control.problem.space import Knob, Space, Stage
from control.problem.tiers import QUARTERS, SessionTier
from control.sessions.session_book import SessionBook
from schemas.effects import Solve, Solved
from schemas.enumerations import SessionState
from schemas.pipeline import Pipeline, Policy, Task, Variant
from schemas.records import Session, SessionChoice, SessionPlan

TIER, TASK = "cloud", "read"
POLICY = Policy(name="compass", kind="compass")
SPACE = SessionSpace(
    space=Space((Stage(TASK, "", (TIER,)),), (Knob(TASK, "votes", ("1", "3")),), (TIER,)),
    tiers={TIER: SessionTier(price=0.2)}, links={}, origin=TIER, latency_s=1.0, accuracy=0.9,
    usd_per_h=None, values={f"{TASK}.votes": {"1": 1, "3": 3}}, variants={TASK: "v"},
)  # fmt: skip
PIPELINE = Pipeline(
    name="p", slo_s=1.0, policies=(POLICY,), policy=POLICY.name, sessions=True,
    tasks=(Task(name=TASK, variants=(Variant(task=TASK, name="v", operator="m:C"),)),),
)  # fmt: skip
PLANS = tuple(
    SessionChoice(
        settings={TASK: SPACE.setting(TASK, c)}, tiers={TASK: TIER}, quarters={TASK: c + 1}
    )
    for c in range(2)
)


class Decisions:
    """Sessions of two plans each on devices that ``sessions`` of them fill."""

    def __init__(self, sessions: int) -> None:
        devices = [f"{TIER}-{n}" for n in range(-(-sessions // QUARTERS))]
        self._seats = tuple(
            Seat(worker=f"{each}-{TASK}", task=TASK, tier=TIER, device=each, slot=n)
            for n, each in enumerate(devices)
        )
        settings = frozenset(plan.settings[TASK] for plan in PLANS)
        self._held = {seat.worker: settings for seat in self._seats}
        self._book, self._schedules = SessionBook(PIPELINE, SPACE), SessionSchedules(SPACE)
        self._opened = 0
        self.plans: tuple[SessionPlan, ...] = ()
        for _ in range(sessions):
            self._open(0.0)
        self._turn(0.0)
        self._turn(0.1)

    @property
    def serving(self) -> int:
        """The number of sessions that serve."""
        return len(self._book.serving)

    def round(self, now: float) -> tuple[float, float]:
        """Close a session and open two; return the seconds of the controller and the schedule."""
        self._book.close(next(iter(self._book.serving)), now)
        self._open(now)
        self._open(now)
        found = self._turn(now)
        # The closed one drains first; then another one has its place.
        self._turn(now + PIPELINE.slo_s + PIPELINE.grace_s)
        self._turn(now + PIPELINE.slo_s + PIPELINE.grace_s + 0.1)
        return found

    def _open(self, now: float) -> None:
        name, self._opened = f"s{self._opened}", self._opened + 1
        asked = Session(
            id=name, pipeline="p", state=SessionState.OPENING, slo_s=1.0, samples="workload@0"
        )
        self._book.open(asked, now)
        self._book.planned(name, PLANS, now)

    def _turn(self, now: float) -> tuple[float, float]:
        began, solve_s = time.perf_counter(), 0.0
        self._book.review(self._seats, self._held, {}, now)
        for effect in self._schedules.begin(self._book, POLICY, now):
            assert isinstance(effect, Solve)
            solving = time.perf_counter()
            made = solve(SCHEDULE, effect.problem)
            solve_s += time.perf_counter() - solving
            self._schedules.solved(Solved(effect.job, made), self._book, now)
            self._book.review(self._seats, self._held, {}, now)
        self.plans = self._book.plans
        self._book.news()
        self._book.deletions()
        return time.perf_counter() - began - solve_s, solve_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the times of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=1000, help="that serve (1000)")
    parser.add_argument("--rounds", type=int, default=200, help="(200)")
    options = parser.parse_args(arguments)
    decisions = Decisions(options.sessions)
    times = np.array([decisions.round(10.0 * number) for number in range(1, options.rounds + 1)])
    print(f"{decisions.serving} sessions serve; ms in the median, 99th of 100 and at most:")
    for name, column in (("controller", times[:, 0]), ("schedule", times[:, 1])):
        print(name, *(f"{1e3 * q:.1f}" for q in np.percentile(column, [50, 99, 100])))
    both = np.percentile(times.sum(axis=1), [50, 99, 100])
    print("together", *(f"{1e3 * each:.1f}" for each in both))


if __name__ == "__main__":
    main()
