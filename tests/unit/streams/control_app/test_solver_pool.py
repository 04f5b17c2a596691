"""streams/control_app/solver_pool.py: solves in a separate process."""

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from itertools import count

import pytest

from control.controller.session_schedules import ScheduleProblem
from control.policies.compass.schedule.instance import Instance
from control.policies.solvers import MIX, SCHEDULE, SEARCH
from control.policies.static import allocate
from control.problem.problem import Problem
from schemas.effects import Event, Failed, Solve, Solved
from schemas.pipeline import Policy
from streams.control_app import solver_pool
from streams.control_app.solver_pool import Planners, solve_event
from tests.control_world import a_pipeline, a_profile

PROBLEM = Problem(
    pipeline=a_pipeline(),
    policy=Policy(name="static"),
    slo_s=0.3,
    demand_qps=1.0,
    devices=("cpu",) * 3,
    profile=a_profile(),
)


NOTHING = ScheduleProblem(Instance(tiers={}, sessions=()), "goodput")


class Endless:
    """Return a schedule problem whose solve never returns."""

    @property
    def instance(self) -> int:
        return sum(count())


@pytest.fixture(scope="module")
def planners() -> Iterator[Planners]:
    found = Planners()
    yield found
    found.close()


def told(planners: Planners, effect: Solve) -> Event:
    future = planners.start(effect)
    error = future.exception(60)
    return planners.outcome(effect, error, None if error else future.result())


def test_a_solve_comes_back_as_the_planner_returned_it(planners: Planners) -> None:
    assert told(planners, Solve(3, "static", PROBLEM)) == Solved(3, allocate(PROBLEM))


def test_no_plan_comes_back_as_a_sentence(planners: Planners) -> None:
    policy = Policy(name="p", replicas={"locate/net": 65})
    problem = Problem(
        pipeline=a_pipeline(), policy=policy, slo_s=0.3, demand_qps=1.0, devices=("cpu",)
    )
    event = told(planners, Solve(4, "static", problem))
    assert isinstance(event, Failed)
    assert event.error.startswith("policy 'p' asks for 65 replicas of task 'locate'")


def test_an_unknown_planner_is_named(planners: Planners) -> None:
    event = told(planners, Solve(5, "magic", PROBLEM))
    assert isinstance(event, Failed)
    assert "'magic'" in event.error


def test_a_killed_process_is_replaced(planners: Planners) -> None:
    for pid in list(planners._pools[False]._processes):
        os.kill(pid, signal.SIGKILL)
    events = [told(planners, Solve(job, "static", PROBLEM)) for job in (6, 7)]
    assert events[-1] == Solved(7, allocate(PROBLEM))


@pytest.mark.thorough
def test_single_job_is_repeated_if_its_process_is_killed(
    planners: Planners,
) -> None:
    for pid in list(planners._pools[False]._processes):
        os.kill(pid, signal.SIGKILL)
    event = asyncio.run(solve_event(planners, Solve(30, SCHEDULE, NOTHING)))
    assert isinstance(event, Solved)


@pytest.mark.thorough
def test_a_solve_that_never_returns_is_ended_and_later_ones_are_made(
    planners: Planners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver_pool, "MOST_S", 1.0)
    event = asyncio.run(solve_event(planners, Solve(40, SCHEDULE, Endless())))
    assert event == Failed(40, "planner 'schedule' had not ended after 1 s and was killed")
    monkeypatch.undo()
    assert told(planners, Solve(41, "static", PROBLEM)) == Solved(41, allocate(PROBLEM))


@pytest.mark.thorough
def test_plays_of_mixes_run_aside_at_the_lowest_priority_and_no_plan_waits_for_them(
    planners: Planners,
) -> None:
    plays = [planners.start(Solve(job, MIX, "no problem")) for job in (20, 21)]
    assert all(each.exception(60) is not None for each in plays)
    (aside,) = planners._pools[True]._processes
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, aside) == min(own + 19, 19)
    assert list(planners._pools[False]._processes) != [aside]
    os.kill(aside, signal.SIGKILL)
    plays = [planners.start(Solve(job, MIX, "no problem")) for job in (22, 23)]
    assert plays[-1].exception(60) is not None


def test_a_plan_takes_the_place_of_an_earlier_plan_and_of_nothing_else(
    planners: Planners,
) -> None:
    """The step of a session's search was dropped for a plan, and its search waited forever."""
    plans = [planners.start(Solve(job, "static", PROBLEM)) for job in (8, 9)]
    step = planners.start(Solve(10, SEARCH, "no problem"))
    plans += [planners.start(Solve(job, "static", PROBLEM)) for job in (11, 12)]
    assert step.exception(60) is not None  # it was attempted; a cancelled one raises
    assert plans[-1].result(60) == allocate(PROBLEM)


def test_closing_ends_a_running_solve() -> None:
    """A control app that ended waited for its solve, for minutes."""
    planners = Planners()
    future = planners.start(Solve(50, SCHEDULE, Endless()))
    while not future.running():
        os.sched_yield()
    planners.close()
    assert isinstance(future.exception(), BrokenProcessPool)
