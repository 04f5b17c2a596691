"""Compare the simulator with queueing theory: times in M/M/1, M/D/1, E_c/M/1 and a tandem of M/M/1.

The production nodes serve: an ingress, a worker for each server and an egress, under one fixed
plan. Each figure is the mean of independent runs with its confidence interval (Student's t). The
closed form must lie within that interval. At 99.9 % a correct simulator fails one seed in a
thousand; the seeds are fixed.

Workers share no queue: each slot has one reader, and senders visit the slots in turn. So c workers
are c queues with Erlang gaps, E_c/M/1. For M/M/c, a node of this file (one queue with c servers)
replaces the worker.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import scipy
from msgspec.structs import replace

from operators.egress.egress import Egress
from operators.ingress.ingress import Ingress
from operators.serving.worker import Worker
from schemas.effects import (
    OUTPUTS,
    PLANS,
    QUERIES,
    RESULTS,
    Arrived,
    Assign,
    Effect,
    Event,
    Infer,
    Inferred,
    Load,
    Send,
    Woke,
    work_topic,
)
from schemas.records import Answer, End, Query, Settings, Work
from streams.simulated.delays import constant_delays
from streams.simulated.simulated_driver import Simulated
from tests.builders import a_lease, a_pipeline, a_plan

SERVICE_S = 0.01
RUNS = 10
QUERIES_EACH = 3000
WARM = 500  # warm-up queries, not counted: a queue starts empty
CONFIDENCE = 0.999
LONG_S = 1e6  # no deadline matters

Service = Callable[[np.random.Generator], float]


def exponential(rng: np.random.Generator) -> float:
    return float(rng.exponential(SERVICE_S))


def fixed(rng: np.random.Generator) -> float:
    return SERVICE_S


class Server:
    """A model that runs batches of one; ``service`` draws the latency."""

    load_s = 0.0

    def __init__(self, rng: np.random.Generator, service: Service, children: Sequence[str]) -> None:
        self._rng = rng
        self._service = service
        self._children = children

    def latency_s(self, batch: int) -> float:
        assert batch == 1
        return self._service(self._rng)

    def predict(self, values: Sequence[object]) -> list[object]:
        return [{child: [None] for child in self._children} or None for _ in values]


class Bank:
    """A node that serves one queue with several servers."""

    def __init__(self, servers: int) -> None:
        self.idle = servers
        self.queue: deque[Work] = deque()
        self.served: dict[int, Work] = {}
        self.jobs = 0

    def handle(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Woke):
            return [Load("a/v"), Assign(work_topic("a"), (0,))]
        effects: list[Effect] = []
        if isinstance(event, Inferred):
            self.idle += 1
            work = self.served.pop(event.job)
            item = replace(work.items[0], end=End("answered", "a"))
            effects.append(Send(OUTPUTS, replace(work, task="", items=(item,)), 0))
        elif isinstance(event, Arrived) and isinstance(event.record, Work):
            self.queue.append(event.record)
        while self.idle and self.queue:
            self.idle -= 1
            self.jobs += 1
            self.served[self.jobs] = self.queue.popleft()
            effects.append(Infer(self.jobs, "a/v", (None,)))
        return effects


class Sojourns:
    """Record the seconds of every query in the system, from its arrival to its answer, without the
    notice."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            if isinstance(effect, Send) and effect.topic == RESULTS:
                answer = effect.record
                assert isinstance(answer, Answer)
                assert answer.outcome == "answered"
                self.seconds.append(answer.answered_s - answer.created_s)


def sojourn_s(seed: int, rate_qps: float, servers: Sequence[int], service: Service) -> float:
    """Return the mean time in the system of one run, without the warm-up."""
    _, seconds = sojourns(seed, rate_qps, servers, service)
    return float(np.mean(seconds[WARM:]))


def sojourns(
    seed: int, rate_qps: float, servers: Sequence[int], service: Service, bank: int = 0
) -> tuple[list[float], list[float]]:
    """Return the arrivals of one run and the time of each in the system, with ``servers`` workers
    at each stage in turn, or one node with ``bank`` servers."""
    stages = "abc"[: len(servers)]
    below = {stage: list(stages[at + 1 : at + 2]) for at, stage in enumerate(stages)}
    pipeline = a_pipeline(below, slo_s=LONG_S, admission=False)
    rng, seen = np.random.default_rng([seed, 0]), Sojourns()
    rngs = np.random.default_rng([seed, 1]).spawn(sum(servers))
    names = [
        f"{stage}{i}" for stage, count in zip(stages, servers, strict=True) for i in range(count)
    ]

    def make(node: str, variant: str) -> Server:
        return Server(rngs[names.index(node)], service, below[node[0]])

    workers = {name: Worker(name, pipeline, "d", incarnation=0.0) for name in names}
    nodes = {
        "ingress": Ingress("ingress", pipeline, (0,), incarnation=0.0),
        "egress": Egress("egress", pipeline, range(2), incarnation=0.0),
        **({"a0": Bank(bank)} if bank else workers),
    }
    system = Simulated(pipeline, nodes, make, constant_delays(0.0), observers=[seen], keep=())
    leases = [a_lease(name, name[0], batch=1, slots=(int(name[1:]),)) for name in names]
    settings = Settings(policy="static", slo_s=LONG_S)
    system.input(0.0, PLANS, 0, a_plan(leases, settings=settings))
    arrivals = (1.0 + np.cumsum(rng.exponential(1 / rate_qps, QUERIES_EACH))).tolist()
    for at_s in arrivals:
        system.input(at_s, QUERIES, 0, Query(payload=None))
    while len(seen.seconds) < QUERIES_EACH:
        system.run(system.now + 10.0)
    return arrivals, seen.seconds


def within(means: Sequence[float], expected: float) -> bool:
    """Return whether the expected value lies in the confidence interval of the mean of the runs."""
    low, high = scipy.stats.t.interval(
        CONFIDENCE, len(means) - 1, loc=np.mean(means), scale=scipy.stats.sem(means)
    )
    # A wide interval contains anything, so its width must stay below a fifth of the value.
    assert high - low < 0.2 * expected
    return bool(low <= expected <= high)


def runs(rate_qps: float, servers: Sequence[int], service: Service) -> list[float]:
    return [sojourn_s(seed, rate_qps, servers, service) for seed in range(RUNS)]


def m_m_1(load: float) -> float:
    return SERVICE_S / (1 - load)


def m_d_1(load: float) -> float:
    """Apply the Pollaczek-Khinchine formula without variance of the service time."""
    return SERVICE_S * (1 + load / (2 * (1 - load)))


def e_c_m_1(load: float, servers: int) -> float:
    """Return the time at one of several servers that Poisson arrivals visit in turn (Erlang gaps;
    G/M/1)."""
    rate = load * servers / SERVICE_S

    def root(x: float) -> float:
        return float((rate / (rate + (1 - x) / SERVICE_S)) ** servers - x)

    return SERVICE_S / (1 - float(scipy.optimize.brentq(root, 0.0, 1 - 1e-9)))


@pytest.mark.thorough
@pytest.mark.parametrize("load", [0.25, 0.45])
def test_one_exponential_server_is_m_m_1(load: float) -> None:
    assert within(runs(load / SERVICE_S, (1,), exponential), m_m_1(load))


@pytest.mark.thorough
def test_one_steady_server_is_m_d_1() -> None:
    assert within(runs(0.7 / SERVICE_S, (1,), fixed), m_d_1(0.7))


@pytest.mark.thorough
def test_three_servers_visited_in_turn_are_e_3_m_1() -> None:
    rate = 0.6 * 3 / SERVICE_S
    assert within(runs(rate, (3,), exponential), e_c_m_1(0.6, 3))


def m_m_c(load: float, servers: int) -> float:
    """Apply Erlang's C formula."""
    offered = load * servers
    waits = offered**servers / math.factorial(servers) / (1 - load)
    empty = sum(offered**k / math.factorial(k) for k in range(servers))
    return SERVICE_S * (1 + waits / (empty + waits) / (servers * (1 - load)))


@pytest.mark.thorough
def test_one_queue_with_three_servers_is_m_m_3() -> None:
    found = [
        float(np.mean(sojourns(seed, 0.5 * 3 / SERVICE_S, (1,), exponential, 3)[1][WARM:]))
        for seed in range(RUNS)
    ]
    assert within(found, m_m_c(0.5, 3))


@pytest.mark.thorough
def test_a_tandem_of_two_stages_is_two_m_m_1() -> None:
    # Burke's theorem: the departures of an M/M/1 are a Poisson process.
    assert within(runs(0.5 / SERVICE_S, (1, 1), exponential), 2 * m_m_1(0.5))


@pytest.mark.parametrize("load", [0.5, 0.9, 1.1])
def test_every_query_follows_lindleys_recursion(load: float) -> None:
    arrivals, found = sojourns(3, load / SERVICE_S, (1,), exponential)
    (rng,) = np.random.default_rng([3, 1]).spawn(1)
    free_s, expected = 0.0, []
    for at_s in arrivals:
        free_s = max(at_s, free_s) + exponential(rng)
        expected.append(free_s - at_s)
    assert found == pytest.approx(expected, abs=1e-9)
