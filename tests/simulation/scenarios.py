"""A whole system in virtual time, drawn from a seed, with deaths and moved leases.

The repr of a ``Scenario`` suffices to repeat the run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from operators.egress.egress import Egress, made_s, upto_of
from operators.ingress.ingress import Ingress
from operators.serving.worker import Worker
from schemas.effects import OUTPUTS, PLANS, QUERIES, RESULTS, Node, Observer
from schemas.pipeline import Pipeline
from schemas.records import Answer, Plan, Query, Settings
from streams.simulated.delays import constant_delays
from streams.simulated.simulated_driver import Simulated
from tests.builders import a_lease, a_pipeline, a_plan
from tests.toys import Toy, Unreadable

PARTITIONS = 4
SLOTS = 3  # leased slots of each task
COMMIT_S = 0.03
UNTIL_S = 5.0


@dataclass(frozen=True, slots=True)
class Death:
    """The death of a node; another node with its name replaces it."""

    at_s: float
    node: int
    for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A run: the maximum fan-out of each stage, the nodes, and the faults.

    ``moves`` are the times of new plans, whose leases are drawn from the seed.
    """

    seed: int
    fan_outs: tuple[int, ...]
    workers: int
    queries: int
    slo_s: float
    deaths: tuple[Death, ...] = ()
    moves: tuple[float, ...] = ()
    incomplete: str = "answered"

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple("abcd"[: len(self.fan_outs) + 1])

    def pipeline(self) -> Pipeline:
        stages = self.stages
        below = {task: stages[i + 1 : i + 2] for i, task in enumerate(stages)}
        return a_pipeline(below, slo_s=self.slo_s, grace_s=0.1, incomplete=self.incomplete)

    def rng(self, *use: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *use])

    def model(self, node: str, variant: str) -> Toy:
        """Return a model with random latencies; its outputs depend on the input only."""
        stage = self.stages.index(variant.partition("/")[0])
        rng = self.rng(2, crc32(f"{node} {variant}".encode()))
        if stage == len(self.fan_outs):
            return Toy(rng, _reading, base_s=0.004, load_s=0.05)
        return Toy(rng, _fanning(self.fan_outs[stage]), base_s=0.004, load_s=0.05)


def _reading(value: Any, rng: np.random.Generator) -> Any:
    return Unreadable(value) if crc32(value.encode()) % 23 == 0 else value


def _fanning(most: int) -> Callable[[Any, np.random.Generator], Any]:
    def output(value: Any, rng: np.random.Generator) -> Any:
        return [f"{value}/{i}" for i in range(crc32(value.encode()) % (most + 1))]

    return output


class World:
    """A scenario during its run."""

    def __init__(self, scenario: Scenario, observer: Observer) -> None:
        self.scenario = scenario
        self.pipeline = scenario.pipeline()
        self.workers = [f"w{i}" for i in range(scenario.workers)]
        self.names = ["ingress", "egress", *self.workers]
        self.plans = [self._plan(number) for number in range(len(scenario.moves) + 1)]
        self.simulated = Simulated(
            self.pipeline,
            {},
            scenario.model,
            constant_delays(0.001, COMMIT_S),
            observers=[observer],
        )
        for name in self.names:
            self.simulated.start(name, self._node(name))
        for at_s, plan in zip((0.0, *sorted(scenario.moves)), self.plans, strict=True):
            self.simulated.input(at_s, PLANS, 0, plan)
        rng = scenario.rng(1)
        times = 0.1 + np.sort(rng.random(scenario.queries)) * 1.5
        for number, at_s in enumerate(times):
            query = Query(payload=f"q{number}", id=f"q{number}")
            self.simulated.input(float(at_s), QUERIES, int(rng.integers(PARTITIONS)), query)
        for death in scenario.deaths:
            self._die(self.names[death.node % len(self.names)], death)

    def run(self) -> Iterator[None]:
        """Run one step at a time."""
        while self.simulated.step(UNTIL_S):
            yield

    def answers(self) -> list[Answer]:
        logs = self.simulated.written(RESULTS).values()
        return [record for log in logs for record, _ in log if isinstance(record, Answer)]

    def _die(self, name: str, death: Death) -> None:
        simulated = self.simulated
        simulated.at(death.at_s, lambda: simulated.kill(name))
        simulated.at(death.at_s + death.for_s, lambda: simulated.start(name, self._node(name)))

    def _plan(self, number: int) -> Plan:
        """Return a plan with at least one worker per stage; all slots of a stage are leased."""
        stages, rng = self.scenario.stages, self.scenario.rng(3, number)
        order = [self.workers[i] for i in rng.permutation(len(self.workers))]
        extra = rng.integers(len(stages), size=len(order))
        at = [i if i < len(stages) else int(extra[i]) for i in range(len(order))]
        leases = []
        for stage, task in enumerate(stages):
            mine = [worker for worker, where in zip(order, at, strict=True) if where == stage]
            for i, worker in enumerate(mine):
                slots = tuple(range(i, SLOTS, len(mine)))
                variant = "vw"[int(rng.integers(2))]
                leases.append(a_lease(worker, task, variant, 1 + int(rng.integers(4)), slots))
        settings = Settings(policy="static", slo_s=self.scenario.slo_s)
        return a_plan(leases, number + 1, settings=settings)

    def _node(self, name: str) -> Node:
        if name == "ingress":
            return Ingress(name, self.pipeline, range(PARTITIONS), incarnation=0.0)
        if name == "egress":
            return self._egress()
        return Worker(name, self.pipeline, "d", incarnation=0.0, latency=lambda v, n: 0.004 * n)

    def _egress(self) -> Egress:
        """Return an egress with the state that streams/kafka/egress_recovery.py would read back."""
        committed = self.simulated.committed(OUTPUTS)
        written = self.simulated.written(OUTPUTS)
        again = [
            min([at_s, *made_s(record)])
            for slot, log in written.items()
            for record, at_s in log[committed.get(slot, (0, ""))[0] :]
        ]
        since_s = min(again, default=float("inf"))
        return Egress(
            "egress",
            self.pipeline,
            (0, 1),
            incarnation=0.0,
            notes={slot: upto_of(note) for slot, (_, note) in committed.items()},
            answered=[
                (record.origin.partition, record.origin.offset)
                for log in self.simulated.written(RESULTS).values()
                for record, at_s in log
                if isinstance(record, Answer) and at_s >= since_s
            ],
        )
