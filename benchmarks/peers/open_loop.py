"""An open-loop load with deadlines, and a closed loop that finds capacity."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

Ask = Callable[[float], Awaitable[str]]  # sends a query that may take so many s; how it ended

SERVED = "served"
LATE = "no answer in time"
PATIENCE_S = 10.0  # of the closed loop, for a query
WINDOW_S, GROWS, MOST_WINDOWS = 15.0, 1.03, 10  # of a warm-up


@dataclass(frozen=True, slots=True)
class Ended:
    """A query of the measured time: seconds from when it was due, and how it ended."""

    took_s: float
    ending: str


class OpenLoop:
    """Poisson arrivals of a given number; each query is given up after ``slo_s``, as a client with
    a deadline does.

    Latency counts from the moment a query is due, so that a load generator that falls behind hides
    nothing.
    """

    def __init__(self, ask: Ask, slo_s: float, rng: np.random.Generator) -> None:
        self._ask = ask
        self._slo_s = slo_s
        self._rng = rng
        self._ended: list[Ended] = []

    async def offer(self, rate: float, seconds: float) -> list[Ended]:
        """Offer ``rate`` queries/s for ``seconds``; return how each has ended."""
        count = max(1, round(rate * seconds))  # as many in every round
        after_s = np.sort(self._rng.uniform(0.0, seconds, size=count))
        began_s = time.perf_counter()
        self._ended = []
        async with asyncio.TaskGroup() as group:
            for due_s in began_s + after_s:
                ahead_s = due_s - time.perf_counter()
                if ahead_s > 0:
                    await asyncio.sleep(ahead_s)
                group.create_task(self._one(float(due_s)))
        return self._ended

    async def _one(self, due_s: float) -> None:
        left_s = due_s + self._slo_s - time.perf_counter()
        ending = await answer_within(self._ask, left_s) if left_s > 0 else LATE
        took_s = time.perf_counter() - due_s
        in_time = ending != SERVED or took_s <= self._slo_s
        self._ended.append(Ended(took_s, ending if in_time else LATE))


async def answer_within(ask: Ask, seconds: float) -> str:
    """Return how a query ended, ``LATE`` if it has not after ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            return await ask(seconds)
    except TimeoutError:
        return LATE


async def closed_loop(ask: Ask, in_flight: int, seconds: float) -> list[Ended]:
    """Keep ``in_flight`` queries in flight; return the endings of those that ended within
    ``seconds``."""
    ended: list[Ended] = []
    until_s = time.perf_counter() + seconds

    async def one_after_the_other() -> None:
        now = time.perf_counter()
        while now < until_s:
            sent_s, ending = now, await answer_within(ask, PATIENCE_S)
            now = time.perf_counter()
            if now <= until_s:
                ended.append(Ended(now - sent_s, ending))

    await asyncio.gather(*(one_after_the_other() for _ in range(in_flight)))
    return ended


async def warmed_up(ask: Ask, in_flight: int) -> float:
    """Keep ``in_flight`` queries in flight until throughput no longer grows; return it, per second.
    The just-in-time compiler of a broker needs a minute or more of this."""
    best_qps = 0.0
    for _ in range(MOST_WINDOWS):
        ended = await closed_loop(ask, in_flight, WINDOW_S)
        served_qps = sum(each.ending == SERVED for each in ended) / WINDOW_S
        grows = served_qps > GROWS * best_qps
        best_qps = max(best_qps, served_qps)
        if best_qps > 0 and not grows:
            break
    return best_qps
