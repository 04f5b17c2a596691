"""The control plane loses nothing in disturbances, and then plans as if there had been none."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from control.checks.structure_check import check_structure
from control.controller.controller import Controller
from control.policies.solvers import solve, virtual_s
from control.problem.problem import PlanError
from headrace.roles.profile_lookups import latency_of
from operators.egress.egress import Egress
from operators.ingress.ingress import Ingress
from operators.models.emulated import Emulated
from operators.serving.worker import Worker
from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    QUERIES,
    REPORTS,
    Arrived,
    Effect,
    Event,
    Failed,
    Node,
    Reject,
    Send,
    Solve,
    Solved,
)
from schemas.pipeline import Policy
from schemas.records import Answer, Command, CommandResult, Plan, Query
from streams.control_app.host import RESTORED, ControlHost
from streams.simulated.delays import constant_delays
from streams.simulated.simulated_driver import Simulated
from tests.control_world import a_pipeline, a_profile
from tests.simulation.outputs import the_answers, the_plans

WORKERS = tuple(f"w{n}" for n in range(6))
FIXED = Policy(name="fixed", replicas={"locate/net": 1, "read/forest": 2})
POLICIES = ("loki", "loki-paper", "inferline", "proteus", "fixed")
RATE_QPS, FIRST_S, CALM_S, LAST_S = 20.0, 4.0, 35.0, 75.0
STEADY_S = 20.0  # at the end, in which the plan may not change
HOUR_S = 3600.0
PROFILE = a_profile()


@dataclass(frozen=True)
class Disturbance:
    """Something that goes wrong: what, at which worker, and for how long."""

    at_s: float
    what: str
    worker: str
    for_s: float
    argument: str = ""


class Reports:
    """A node whose clock is wrong, and whose reports may be lost, late, doubled or out of order."""

    def __init__(self, node: Node, ahead_s: float = 0.0) -> None:
        self._node, self._ahead_s = node, ahead_s
        self._kept: list[Effect] = []
        self.how, self.until_s = "", 0.0

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for effect in self._node.handle(event, now):
            if isinstance(effect, Send) and effect.topic == REPORTS:
                effects += self._sent(effect, now)
            else:
                effects.append(effect)
        return effects

    def _sent(self, send: Send, now: float) -> list[Effect]:
        report = send.record
        times = {name: getattr(report, name) + self._ahead_s for name in ("incarnation", "sent_s")}
        own: Effect = Send(REPORTS, with_fields(report, **times), send.slot)
        how = self.how if now < self.until_s else ""
        if how == "lost":
            return []
        if how == "doubled":
            return [own, own]
        if how in ("late", "reordered"):
            self._kept.append(own)
            if how == "late" or len(self._kept) < 2:
                return []
        kept, self._kept = self._kept, []
        return kept[::-1] if how == "reordered" else [*kept, own]


class Rejections:
    """Records the plans that the checks have refused."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self.seen += [f"{now:.2f} {each.reason}" for each in effects if isinstance(each, Reject)]


class Disturbed:
    """A system under its controller, with its disturbances until ``CALM_S``."""

    def __init__(self, policy: str, disturbances: Sequence[Disturbance] = ()) -> None:
        self.policy = policy
        pipeline = replace(a_pipeline(policies=(FIXED,)), policy=policy)
        self.pipeline = replace(pipeline, slo_s=0.4, input="avro", grace_s=0.3)
        self.rejections, self.commands = Rejections(), 0
        self._nodes: dict[str, Reports] = {}
        self.system = Simulated(
            self.pipeline, {}, self._model, constant_delays(0.001, 0.02), solve=solver,
            observers=[self.rejections],
        )  # fmt: skip
        self._control()
        self._node("egress", Egress("egress", self.pipeline, range(4), incarnation=0.0))
        self._ingress()
        for name in WORKERS:
            self._worker(name)
        self.queries = round((LAST_S - FIRST_S) * RATE_QPS)
        for number in range(self.queries):
            query = Query(payload=None, id=f"q{number}")
            self.system.input(FIRST_S + number / RATE_QPS, QUERIES, number % 4, query)
        for each in disturbances:
            self.system.at(each.at_s, self._disturb(each))
        self.system.at(CALM_S, self._calm)
        self.system.run(LAST_S + 3.0)

    def _model(self, node: str, key: str) -> Emulated:
        variant = next(v for t in self.pipeline.tasks for v in t.variants if v.key == key)
        children = self.pipeline.task(variant.task).children
        return Emulated(PROFILE, variant, children, None, device="cpu")

    # ------------------------------------------------------------------ nodes

    def _node(self, name: str, node: Node, ahead_s: float = 0.0) -> None:
        self._nodes[name] = Reports(node, ahead_s)
        self.system.start(name, self._nodes[name])

    def _worker(self, name: str, ahead_s: float = 0.0) -> None:
        planned = latency_of(PROFILE, "cpu", "p95")
        worker = Worker(
            name, self.pipeline, "cpu", incarnation=self.system.now,
            latency=latency_of(PROFILE, "cpu"), planned=planned,
        )  # fmt: skip
        self._node(name, worker, ahead_s)

    def _ingress(self) -> None:
        now = self.system.now
        self._node("ingress", Ingress("ingress", self.pipeline, range(4), incarnation=now))

    def _control(self) -> None:
        host, now = ControlHost(Controller(self.pipeline, PROFILE, len(WORKERS))), self.system.now
        for topic in RESTORED:
            for slot, log in self.system.written(topic).items():
                for offset, (record, at_s) in enumerate(log):
                    host.handle(Arrived(record, topic, slot, offset, at_s), now)
        self.system.start("control", host)

    def command(self, action: str, **arguments: str) -> None:
        self.commands += 1
        command = Command(
            id=f"c{self.commands}", pipeline=self.pipeline.name, action=action, arguments=arguments
        )
        self.system.input(self.system.now, COMMANDS, 0, command)

    # ------------------------------------------------------------------ disturbances

    def _disturb(self, each: Disturbance) -> Callable[[], None]:
        return lambda: self._begin(each)

    def _begin(self, each: Disturbance) -> None:
        end_s = each.at_s + each.for_s
        if each.what in COMMANDED:
            self.command(each.what, **COMMANDED[each.what](each))
        elif each.what in REPORTED:
            for name in (each.worker, "ingress", "egress"):
                self._nodes[name].how, self._nodes[name].until_s = each.what, end_s
        else:
            begin, end = self._fault(each)
            begin()
            self.system.at(end_s, end)

    def _fault(self, each: Disturbance) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return the begin and the end of a fault."""
        system, worker = self.system, each.worker
        ahead_s = HOUR_S if each.for_s > 3.0 else -HOUR_S
        faults: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "dies": (lambda: system.kill(worker), lambda: self._worker(worker)),
            "clock": (lambda: self._worker(worker, ahead_s), lambda: None),
            "slow": (lambda: system.slow(worker, 10.0), lambda: system.slow(worker, 1.0)),
            "control": (lambda: system.kill("control"), self._control),
            "ingress": (lambda: system.kill("ingress"), self._ingress),
            "broker": (lambda: system.stop_broker(each.for_s), lambda: None),
        }
        return faults[each.what]

    def _calm(self) -> None:
        """Undo what commands have changed."""
        for name in WORKERS:
            self.command("restore", target=name)
        self.command("resume")
        self.command("release-demand")
        self.command("set-slo", slo="400ms")
        self.command("apply-policy", policy=self.policy)

    # ------------------------------------------------------------------ what came of it

    def plans(self) -> list[Plan]:
        return the_plans(self.system)

    def last_plan(self) -> tuple[int, bool, float | None]:
        """Return the devices, the feasibility and the accuracy of the plan at the end."""
        plan = [each for each in self.plans() if each.issued_s < LAST_S][-1]
        accuracy = plan.expected_accuracy
        opened = sum(lease.open_slot >= 0 for lease in plan.leases)
        return opened, plan.feasible, None if accuracy is None else round(accuracy, 3)

    def outcomes(self) -> list[Answer]:
        return the_answers(self.system)


COMMANDED: dict[str, Callable[[Disturbance], dict[str, str]]] = {
    "drain": lambda each: {"target": each.worker},
    "restore": lambda each: {"target": each.worker},
    "pause": lambda each: {},
    "resume": lambda each: {},
    "set-slo": lambda each: {"slo": "60ms" if each.for_s > 3.0 else "1s"},
    "set-demand": lambda each: {"qps": "1e9" if each.for_s > 3.0 else "0"},
    "apply-policy": lambda each: {"policy": each.argument},
    "rollback": lambda each: {"epoch": str(round(3 * each.for_s))},
    "reload": lambda each: {"variant": "all"},
    "": lambda each: {"\u202e": "no argument"},
}
FAULTS = ("dies", "clock", "slow", "control", "ingress", "broker")
REPORTED = ("lost", "late", "doubled", "reordered")


def solver(effect: Solve) -> tuple[Solved | Failed, float]:
    seconds = virtual_s(effect.solver)
    try:
        return Solved(effect.job, solve(effect.solver, effect.problem)), seconds
    except PlanError as error:
        return Failed(effect.job, str(error)), seconds


DISTURBANCES = st.builds(
    Disturbance,
    at_s=st.floats(FIRST_S, CALM_S - 6.0).map(lambda at_s: round(at_s, 2)),
    what=st.sampled_from([*FAULTS, *REPORTED, *COMMANDED]),
    worker=st.sampled_from(WORKERS),
    for_s=st.sampled_from([0.3, 1.0, 3.0, 5.0]),
    argument=st.sampled_from([*POLICIES, "none"]),
)


@cache  # by policy: the examples share them
def undisturbed(policy: str) -> tuple[int, bool, float | None]:
    """Return what is in the last plan of a system without disturbances."""
    return Disturbed(policy).last_plan()


@pytest.mark.thorough
@settings(max_examples=10, deadline=None)
@given(policy=st.sampled_from(POLICIES), disturbances=st.lists(DISTURBANCES, max_size=10))
def test_disturbances_lose_nothing_and_leave_nothing_behind(
    policy: str, disturbances: list[Disturbance]
) -> None:
    run = Disturbed(policy, disturbances)
    asked = sorted(f"q{number}" for number in range(run.queries))
    assert sorted(answer.id for answer in run.outcomes()) == asked
    assert run.rejections.seen == []
    plans = run.plans()
    assert [plan.epoch for plan in plans] == list(range(1, len(plans) + 1))
    assert [check_structure(plan, run.pipeline) for plan in plans] == [()] * len(plans)
    written = [r for log in run.system.written(COMMAND_RESULTS).values() for r, _ in log]
    results = Counter(r.id for r in written if isinstance(r, CommandResult))
    assert results == Counter(f"c{number + 1}" for number in range(run.commands))
    assert run.last_plan() == undisturbed(policy)
    steady = [
        (plan.leases, plan.settings) for plan in plans if LAST_S - STEADY_S < plan.issued_s < LAST_S
    ]
    assert all(each == steady[0] for each in steady)
