"""The live driver and the simulator produce the same effects of an edge's process."""

from typing import Any

import numpy as np
import pytest

from control.problem.seats import bound_device
from operators.edge.edge_nodes import edge_nodes
from operators.egress.egress import Egress
from operators.ingress.ingress import Ingress
from operators.input_place import InputPlaces
from operators.serving.worker import Worker
from schemas.effects import PLANS, QUERIES, RESULTS, Deliver, Node
from schemas.pipeline import Pipeline
from schemas.records import Query, SessionPlan, SessionStage, Settings
from streams.live.executors import EmulatedExecutor
from streams.live.live_driver import Live
from streams.simulated.delays import constant_delays
from streams.simulated.simulated_driver import Simulated
from tests.builders import a_lease, a_plan
from tests.memory_transport import JumpingInbox, MemoryTransport, VirtualClock, drive
from tests.session_world import a_session_pipeline
from tests.small_world import HOP_S, UNTIL_S, Input
from tests.tape import Tape, Taped
from tests.toys import Toy, fanning, reading

EDGE = bound_device("handheld", "cam")
SCAN, READ = f"{EDGE}-scan", f"{EDGE}-read"
CLOUD = "cloud-0-read"


def a_stage(task: str, device: str, slot: int) -> SessionStage:
    return SessionStage(
        task=task, setting=f"{task}/v@x=1", tier=device.partition(":")[0], device=device, slot=slot,
        quarters=0,
    )  # fmt: skip


def sessions_plan(*reads: str) -> tuple[SessionPlan, ...]:
    """Return a plan for "cam", which reads at the edge, and for "far", which reads in the cloud."""
    where = {"cam": (EDGE, 0), "far": ("cloud-0", 1)}
    return tuple(
        SessionPlan(
            session=name, number=1, slo_s=0.2, admits=True,
            stages=(a_stage("scan", EDGE, 0), a_stage("read", *where[name])),
        )
        for name in reads
    )  # fmt: skip


def the_nodes(pipeline: Pipeline) -> dict[str, Node]:
    def worker(name: str, device: str) -> Worker:
        return Worker(name, pipeline, device, incarnation=0.0)

    places = InputPlaces(dict.fromkeys(range(4), 0))
    ingress = Ingress("ingress", pipeline, range(4), incarnation=0.0, places=places)
    beside = {SCAN: worker(SCAN, "scan@handheld"), READ: worker(READ, "read@handheld")}
    return {
        **edge_nodes(ingress, "ingress", places, beside, pipeline, "cam"),
        CLOUD: worker(CLOUD, "read@cloud"),
        "egress": Egress("egress", pipeline, range(2), incarnation=0.0),
    }


def the_inputs(seed: int) -> list[Input]:
    """Return a plan, then queries at about 85/s on four partitions."""
    leases = [
        a_lease(SCAN, "scan", slots=(0,)),
        a_lease(READ, "read", slots=(0,)),
        a_lease(CLOUD, "read", slots=(1,)),
    ]
    settings = Settings(policy="compass", slo_s=0.2)
    plan = a_plan(leases, settings=settings, sessions=sessions_plan("cam", "far"))
    rng = np.random.default_rng([seed, 0])
    times = 0.5 + np.cumsum(rng.exponential(1 / 85, 150))
    asked: list[Input] = [
        (float(at), QUERIES, int(rng.integers(4)),
         Query(payload=f"scan {i}", id=f"q{i}", session=("cam", "far", "none")[i % 3]))
        for i, at in enumerate(times)
    ]  # fmt: skip
    return [(0.0, PLANS, 0, plan), *asked]


def the_model(seed: int, node: str, setting: str) -> Toy:
    rng = np.random.default_rng([seed, *node.encode(), *setting.encode()])
    return Toy(rng, fanning(("read",), 3) if setting.startswith("scan") else reading, base_s=0.004)


def simulated(pipeline: Pipeline, seed: int, tape: Tape) -> Simulated:
    def make(node: str, setting: str) -> Toy:
        return the_model(seed, node, setting)

    system = Simulated(
        pipeline, the_nodes(pipeline), make, delays=constant_delays(HOP_S), observers=[tape]
    )
    for at_s, topic, slot, record in the_inputs(seed):
        system.input(at_s, topic, slot, record)
    system.run(UNTIL_S)
    return system


def live(pipeline: Pipeline, seed: int, tape: Tape) -> MemoryTransport:
    clock = VirtualClock()
    transport = MemoryTransport(pipeline, clock, HOP_S)
    inbox = JumpingInbox(clock, transport)
    running = Live(
        pipeline, the_nodes(pipeline), transport, clock=clock, inbox=inbox, observers=[tape]
    )

    def attach(name: str) -> None:
        def make(setting: str) -> Any:
            return the_model(seed, name, setting)

        executor = EmulatedExecutor(
            make, lambda key: make(key).load_s, running.post_at(name), clock
        )
        running.attach(name, executor)

    for name in (SCAN, READ, CLOUD):
        attach(name)
    drive(pipeline, running, inbox, clock, the_inputs(seed), UNTIL_S)
    return transport


def early(tape: Tape) -> list[Taped]:
    return [entry for entry in tape.entries if entry.now < UNTIL_S]


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_both_drivers_produce_the_same_effects_at_the_edge(seed: int) -> None:
    pipeline = a_session_pipeline()
    here, there = Tape(), Tape()
    system = simulated(pipeline, seed, here)
    transport = live(pipeline, seed, there)
    for number, (one, other) in enumerate(zip(early(here), early(there), strict=True)):
        assert one == other, f"event {number} differs with seed {seed}"
    committed = {s: place for (t, s), place in transport.committed.items() if t == "p.queries"}
    assert system.committed(QUERIES) == committed
    assert sum(len(log) for log in system.written(RESULTS).values()) == 150
    assert any(isinstance(e, Deliver) for t in here.entries for e in t.effects)
