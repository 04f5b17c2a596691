"""Sessions in virtual time, with the production controller, ingress, workers and egress."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from control.controller.controller import Controller
from control.policies.solvers import solve, virtual_s
from control.problem.sample_sets import Truth
from control.problem.tiers import Link
from operators.egress.egress import Egress
from operators.ingress.ingress import Ingress
from operators.serving.transfers import Hop, SessionLinks
from operators.serving.worker import Worker
from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    PLANS,
    QUERIES,
    RESULTS,
    SESSIONS,
    Solved,
)
from schemas.records import Answer, Command, CommandResult, Plan, Query, Session
from streams.simulated.delays import constant_delays
from streams.simulated.simulated_driver import Simulated
from tests.session_world import a_session_pipeline, a_space, seats
from tests.toys import Toy, reading

LOAD_S = 0.3


def scanning(value: Any, rng: np.random.Generator) -> dict[str, list[Any]]:
    return {"read": [value, value]}


class World:
    """A system with sessions; tests give commands and queries by time."""

    def __init__(
        self,
        counts: Mapping[str, int] | None = None,
        links: Mapping[Hop, Link] | None = None,
        load_s: float = LOAD_S,
        truth: Truth = Truth.WORKLOAD,
        comm_s: float = 0.0,
        **changes: Any,
    ) -> None:
        self.pipeline = a_session_pipeline(**changes)
        self.space = replace(a_space(counts), truth=truth, comm_s=comm_s)
        self.links: SessionLinks | None = None
        if links is not None:
            self.space = replace(self.space, links=links)
            self.links = SessionLinks(self.space.origin, links)
        self.load_s = load_s
        self.rng = np.random.default_rng(1)
        self.seats = seats(self.space)
        self.system = Simulated(
            self.pipeline,
            {
                "control": self.controller(),
                "ingress": Ingress("ingress", self.pipeline, range(4), incarnation=0.0),
                "egress": Egress(
                    "egress", self.pipeline, range(2), incarnation=0.0, links=self.links
                ),
                **{name: self.worker(name, 0.0) for name in self.seats},
            },
            self.model,
            delays=constant_delays(0.002, 0.1),
            solve=lambda effect: (
                Solved(effect.job, solve(effect.solver, effect.problem)), virtual_s(effect.solver),
            ),
        )  # fmt: skip

    def model(self, node: str, setting: str) -> Toy:
        """Return a worker's model of a setting."""
        output = scanning if setting.startswith("scan") else reading
        return Toy(self.rng, output, base_s=0.004, load_s=self.load_s)

    def controller(self) -> Controller:
        return Controller(self.pipeline, None, len(seats(self.space)), {}, self.space)

    def worker(self, name: str, now: float) -> Worker:
        device = self.seats[name]
        return Worker(name, self.pipeline, device, incarnation=now, links=self.links)

    def command(self, at_s: float, action: str, **arguments: str) -> None:
        given = Command(id=f"{action}-{at_s}", pipeline="p", action=action, arguments=arguments)
        self.system.input(at_s, COMMANDS, 0, given)

    def ask(
        self, session: str, from_s: float, upto_s: float, qps: float = 20.0, payload: str = "scan"
    ) -> None:
        for number in range(int((upto_s - from_s) * qps)):
            at_s = from_s + number / qps
            query = Query(payload=payload, id=f"{session}-{at_s:.3f}", session=session)
            self.system.input(at_s, QUERIES, number % 4, query)

    def records(self, topic: str) -> list[Any]:
        return [r for rows in self.system.written(topic).values() for r, _ in rows]

    def answers(self, session: str) -> list[Answer]:
        found = [each for each in self.records(RESULTS) if isinstance(each, Answer)]
        return [each for each in found if each.id.startswith(f"{session}-")]

    def results(self) -> dict[str, CommandResult]:
        return {each.action: each for each in self.records(COMMAND_RESULTS)}

    def session(self, name: str) -> Session:
        return [each for each in self.records(SESSIONS) if each.id == name][-1]

    def plan(self) -> Plan:
        plans = [each for each in self.records(PLANS) if isinstance(each, Plan)]
        return plans[-1]
