"""A small system for tests under either driver: two stages with fan-out, an ingress, three
workers, an egress, and 200 seeded queries, some of which miss their deadline."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from operators.egress.egress import Egress
from operators.ingress.ingress import Ingress
from operators.serving.worker import Worker
from schemas.effects import PLANS, QUERIES, Node, Observer
from schemas.pipeline import Pipeline
from schemas.records import Query, Record, Selection, SelectionTable, Settings
from streams.live.executors import EmulatedExecutor
from streams.live.live_driver import Live
from streams.simulated.delays import constant_delays
from streams.simulated.simulated_driver import Simulated
from tests.builders import a_lease, a_pipeline, a_plan
from tests.memory_transport import JumpingInbox, MemoryTransport, VirtualClock, drive
from tests.toys import Toy, fanning, reading

HOP_S = 0.002
UNTIL_S = 4.0
SLO_S = 0.06

Input = tuple[float, str, int, Record]


def small_pipeline(**changes: Any) -> Pipeline:
    return a_pipeline({"locate": ["read"], "read": []}, slo_s=SLO_S, **changes)


def small_nodes(pipeline: Pipeline, batch_s: float = 0.01) -> dict[str, Node]:
    """Return the nodes; ``batch_s`` is the latency of a batch that workers predict."""
    workers = {
        name: Worker(name, pipeline, "emulated", incarnation=0.0, latency=lambda v, n: batch_s)
        for name in ("w0", "w1", "w2")
    }
    partitions = range(pipeline.egress_partitions)
    return {
        "ingress": Ingress("ingress", pipeline, range(4), incarnation=0.0),
        **workers,
        "egress": Egress("egress", pipeline, partitions, incarnation=0.0),
    }


def small_inputs(seed: int, queries: int = 200) -> list[Input]:
    """Return a plan, then queries at about 85/s on four partitions."""
    rng = np.random.default_rng([seed, 0])
    plan = a_plan([
        a_lease("w0", "locate", slots=(0,)),
        a_lease("w1", "read", slots=(0, 2)),
        a_lease("w2", "read", slots=(1,)),
    ], settings=Settings(policy="static", slo_s=SLO_S))  # fmt: skip
    times = 0.3 + np.cumsum(rng.exponential(1 / 85, queries))
    slots = rng.integers(0, 4, queries)
    asked: list[Input] = [
        (float(at), QUERIES, int(slot), Query(payload=f"scan {i}", id=f"q{i}"))
        for i, (at, slot) in enumerate(zip(times, slots, strict=True))
    ]
    return [(0.0, PLANS, 0, plan), *asked]


# Tables for two loads: two variants by queue length and slack; a single item with enough slack gets
# the better one.
TABLES = Selection(
    pipeline="p", task="read", policy="static", issued_s=0.0, slo_s=0.03, workers=2,
    variants=("v", "w"), levels_s=(0.0, 0.015, 0.02), tables=(
        SelectionTable(qps=190.0, rows=((0, 0, 1, 2, 1, 1), (0, 0, 2, 1, 1, 1), (0, 0, 3))),
        SelectionTable(qps=400.0, rows=((0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 0, 4))),
    ),
)  # fmt: skip
FOLLOWED: tuple[Input, ...] = ((0.1, PLANS, 0, TABLES),)


def small_model(seed: int, node: str, variant: str) -> Toy:
    """Return the model of a variant at a node, with its own random generator."""
    rng = np.random.default_rng([seed, *node.encode(), *variant.encode()])
    if variant.startswith("locate"):
        return Toy(rng, fanning(("read",), 5), base_s=0.006)
    return Toy(rng, reading, base_s=0.008)


def simulate(
    pipeline: Pipeline,
    nodes: Mapping[str, Node],
    seed: int,
    observer: Observer,
    besides: tuple[Input, ...] = (),
) -> Simulated:
    """Run the small world in virtual time to its end; ``besides`` are additional inputs."""
    simulated = Simulated(
        pipeline,
        nodes,
        lambda node, variant: small_model(seed, node, variant),
        delays=constant_delays(HOP_S),
        observers=[observer],
    )
    for at_s, topic, slot, record in (*small_inputs(seed), *besides):
        simulated.input(at_s, topic, slot, record)
    simulated.run(UNTIL_S)
    return simulated


def run_live(
    pipeline: Pipeline,
    nodes: Mapping[str, Node],
    seed: int,
    observer: Observer,
    besides: tuple[Input, ...] = (),
) -> MemoryTransport:
    """Run the small world under the live driver's own loop, on a virtual clock."""
    clock = VirtualClock()
    transport = MemoryTransport(pipeline, clock, HOP_S)
    inbox = JumpingInbox(clock, transport)
    live = Live(pipeline, nodes, transport, clock=clock, inbox=inbox, observers=[observer])
    for name in nodes:
        if name.startswith("w"):
            live.attach(name, small_hands(live, name, seed, clock))
    drive(pipeline, live, inbox, clock, [*small_inputs(seed), *besides], UNTIL_S)
    return transport


def small_hands(live: Live, node: str, seed: int, clock: VirtualClock) -> EmulatedExecutor:
    return EmulatedExecutor(
        lambda variant: small_model(seed, node, variant),
        lambda variant: small_model(seed, node, variant).load_s,
        live.post_at(node),
        clock,
    )
