"""Solves in separate processes, so that the control app's loop never blocks.

Plays of mixes have their own process, which starts with the first play and runs at the lowest
priority; no plan waits for a play.

Tables of model selection are many small matrix products. With a BLAS thread per core they use ten
times the CPU and take the cores from the workers, so the default is one thread; the environment can
override it. A process ends with its parent, even if the parent is killed.

If a solve exceeds its deadline by ``MOST_S``, the system ends its process, as all later solves
would wait for it. The next solve starts a new process.
"""

import asyncio  # noqa: TID251  (solves end on the loop of the control app)
import logging
import multiprocessing
import os
import signal
import threading  # noqa: TID251  (ends the process with its parent; no decision runs on it)
import time  # noqa: TID251  (the deadline of solves)
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any, Protocol

from control.policies.solvers import MIX, solve, solve_limit_s
from control.problem.problem import Allocation, PlanError, Problem
from schemas.effects import Event, Failed, Solve, Solved
from streams.cpu_seconds import spent

log = logging.getLogger("headrace.control")

LOWEST_PRIORITY = 19
# Limit beyond the deadline of a plan; tables, searches and schedules have no deadline. The longest
# solves take seconds, but a busy machine gives them only a part of its time.
MOST_S = 600.0
ASIDE_MOST_S = 3600.0  # a play only gets idle CPU time


class Solvers(Protocol):
    """Executor of planners, outside the event loop."""

    def start(self, effect: Solve) -> Future[Any]: ...
    def outcome(self, effect: Solve, error: BaseException | None, found: object) -> Event: ...
    def close(self) -> None: ...


class Planners:
    """Pools of one process each. The planners' pool starts at once so that the first plan is not
    late. A second of the policies' deadlines takes ``factor`` wall seconds."""

    def __init__(self, factor: float = 1.0) -> None:
        self._factor = factor
        self._plan: Future[Allocation] | None = None  # solve of the newest plan
        self._pools = {False: _pool(_begin)}  # by whether it runs plays of mixes

    def start(self, effect: Solve) -> Future[Allocation]:
        """Start a solve."""
        try:
            return self._submit(effect)
        except BrokenProcessPool:  # the process was killed between two solves
            del self._pools[effect.solver == MIX]
            return self._submit(effect)

    def _submit(self, effect: Solve) -> Future[Allocation]:
        """Submit a solve; cancel an earlier plan's solve that has not begun.

        Tables, steps of searches, schedules and plays are not cancelled: each is waited for.
        """
        aside = effect.solver == MIX
        if aside not in self._pools:
            self._pools[aside] = _pool(_begin_aside if aside else _begin)
        pool = self._pools[aside]
        most_s = _most_s(effect)
        if not isinstance(effect.problem, Problem):
            return pool.submit(ended_after, most_s, solve, effect.solver, effect.problem)
        if self._plan is not None:
            self._plan.cancel()
        within = solve_limit_s(effect.problem) * self._factor
        self._plan = pool.submit(
            ended_after, most_s + within, solved_in_time, effect.solver, effect.problem, within
        )
        return self._plan

    def outcome(self, effect: Solve, error: BaseException | None, found: object) -> Event:
        """Return the controller's event for a finished solve."""
        if error is None:
            return Solved(effect.job, found)
        if isinstance(error, PlanError):
            return Failed(effect.job, str(error))
        log.error("planner %r failed", effect.solver, exc_info=error)
        return Failed(effect.job, f"planner {effect.solver!r} failed: {error!r}; see the log")

    def close(self) -> None:
        """End the processes, also during a solve."""
        for pool in self._pools.values():
            for process in [*pool._processes.values()]:
                process.kill()
            pool.shutdown(wait=True, cancel_futures=True)


async def solve_event(planners: Solvers, effect: Solve) -> Event | None:
    """Return the event of a solve; None if it was cancelled for a newer plan.

    A solve whose process is killed, for instance by lack of memory, is retried once, since tables
    and searches are requested only once. A plan is not retried, as it is requested again anyway; a
    solve that took too long is not retried, as it would do so again.
    """
    tries = 1 if isinstance(effect.problem, Problem) else 2
    for _ in range(tries):
        began_s = time.monotonic()
        future = asyncio.wrap_future(planners.start(effect))
        await asyncio.wait([future])
        if future.cancelled():
            return None
        error = future.exception()
        if not isinstance(error, BrokenProcessPool):
            break
        # One that was submitted while the ended solve ran has waited for less.
        most_s = _most_s(effect)
        if time.monotonic() - began_s >= most_s:
            error = PlanError(
                f"planner {effect.solver!r} had not ended after {most_s:g} s and was killed"
            )
            break
    return planners.outcome(effect, error, None if error else future.result())


def _most_s(effect: Solve) -> float:
    """Return the wall seconds beyond its deadline after which a solve is ended."""
    return ASIDE_MOST_S if effect.solver == MIX else MOST_S


def ended_after(most_s: float, call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call; end this process if the call takes longer than ``most_s``.

    A system timer does this, which a solver that holds the interpreter's lock cannot delay.
    """
    signal.setitimer(signal.ITIMER_REAL, most_s)
    try:
        return call(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def solved_in_time(solver: str, problem: Problem, within_s: float) -> Allocation:
    """Return a plan; its solver stops ``within_s`` wall seconds from now."""
    timed = replace(problem, meter=spent, stop_s=spent()[1] + within_s)
    plan: Allocation = solve(solver, timed)
    return plan


def _pool(begin: Callable[[], None]) -> ProcessPoolExecutor:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the process inherits the environment
    # Spawned: a fork would inherit the clients' threads and sockets.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, mp_context=context, initializer=begin)
    pool.submit(int)
    return pool


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when the control app does
    follow_parent()


def _begin_aside() -> None:
    _begin()
    os.nice(LOWEST_PRIORITY)


def follow_parent() -> None:
    """End this process when its parent ends; otherwise a pool's process would wait forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
