"""Nodes as their processes start them, with the commits and answers of earlier lives.

By the product's rules (``ingress_role.py`` and ``egress_role.py`` in ``headrace/roles``), over the
faulty broker's offsets and logs.
"""

from collections.abc import Callable

from benchmarks.schedules.faulty_broker import Broker
from benchmarks.schedules.simulated_process import Making
from control.policies import spec_of
from operators.dispatch.dispatch_profile import device_kind, dispatch_profile
from operators.dispatch.dispatch_queue import CentralQueue, Part
from operators.dispatch.dispatcher import Dispatcher
from operators.dispatch.task_dispatcher import TaskDispatcher
from operators.egress.egress import Egress, highest, made_s, upto_of
from operators.ingress.ingress import Ingress
from operators.input_place import InputPlaces, commit_at, start_of_input
from operators.serving.worker import Worker
from profiles.measurements import EMULATED
from schemas.codec.single_object import decode
from schemas.effects import OUTPUTS, QUERIES, RESULTS, Node
from streams.codecs.wire import origins
from streams.kafka.egress_recovery import Committed, answers_from_s
from streams.topics import physical

PARTITIONS = 4  # of the input topic
TOPIC_ID = "input"  # of the input topic, which no schedule recreates


def ingress(making: Making, broker: Broker, name: str, incarnation: float) -> Node:
    """Return an ingress of all partitions, which resumes as the role does (``input_commits``)."""
    pipeline = making.pipeline
    group, topic = f"{pipeline.name}.ingress", physical(pipeline.name, QUERIES)
    outputs = broker.notes(f"{pipeline.name}.egress", physical(pipeline.name, OUTPUTS))
    closed = highest(upto_of(note) for _, note in outputs.values())
    mine = range(PARTITIONS)
    start = start_of_input(mine, broker.notes(group, topic), closed, TOPIC_ID)
    fresh = {(topic, p): commit_at(place, TOPIC_ID) for p, place in start.fresh.items()}
    broker.commit(group, fresh, name)
    return Ingress(
        name, pipeline, mine, incarnation=incarnation,
        places=InputPlaces(start.upto, TOPIC_ID, start.regressed),
        dispatchers=_root_dispatchers(making),
    )  # fmt: skip


def _root_dispatchers(making: Making) -> tuple[CentralQueue, ...]:
    """Return the dispatcher of ingress, where a policy of the pipeline dispatches: of the most
    accurate variant (``headrace/roles/dispatching.py``)."""
    pipeline, profile = making.pipeline, making.profile
    if not any(spec_of(policy.kind).dispatch for policy in pipeline.policies):
        return ()
    assert profile is not None
    root = pipeline.root
    best = max(root.variants, key=lambda each: profile.accuracy(root.name, each.name))

    def seconds(kind: str, size: int, quantile: str) -> float:
        return profile.latency_s(root.name, best.name, EMULATED, size, quantile)

    return (Dispatcher(pipeline, dispatch_profile((EMULATED,), seconds, 1), Part(0, 1)),)


def egress(making: Making, broker: Broker, name: str, incarnation: float) -> Node:
    """As ``streams/kafka/egress_recovery.py`` recovers."""
    pipeline = making.pipeline
    topic = physical(pipeline.name, OUTPUTS)
    notes = broker.notes(f"{pipeline.name}.egress", topic)
    places = []
    for _, slot in broker.places(topic):
        offset, note = notes.get(slot, (0, ""))
        times = [
            at_s
            for each in broker.readable((topic, slot), offset)
            for at_s in (each.at_s, *made_s(decode(each.value or b"")))
        ]
        places.append(Committed(slot, offset, note, min(times, default=None)))
    since_s = answers_from_s(places)
    read = origins(pipeline)
    answered = [
        origin
        for place in broker.places(physical(pipeline.name, RESULTS))
        for each in broker.readable(place)
        if since_s is not None and each.at_s >= since_s
        for origin in read(each.value or b"")
    ]
    return Egress(
        name, pipeline, range(pipeline.egress_partitions), incarnation=incarnation,
        notes={each.slot: upto_of(each.note) for each in places},
        answered=() if making.forgetful else answered,
    )  # fmt: skip


def worker(making: Making, broker: Broker, name: str, incarnation: float) -> Node:
    return Worker(
        name, making.pipeline, "emulated", incarnation=incarnation, latency=lambda v, n: 0.004 * n
    )


def dispatcher(making: Making, broker: Broker, name: str, incarnation: float) -> Node:
    """Return a dispatcher of the inner task; its number is at the end of its name."""
    pipeline, profile = making.pipeline, making.profile
    assert profile is not None
    (task,), number = pipeline.dispatched, int(name.rpartition("-")[2])
    kinds = {device_kind(EMULATED, each.name): each.name for each in task.variants}

    def seconds(kind: str, size: int, quantile: str) -> float:
        return profile.latency_s(task.name, kinds[kind], EMULATED, size, quantile)

    known = dispatch_profile(tuple(kinds), seconds, 1, by_variant=True)
    part = Part(number, pipeline.dispatchers)
    return TaskDispatcher(
        name, pipeline, task.name, Dispatcher(pipeline, known, part, task=task),
        incarnation=incarnation, number=number,
    )  # fmt: skip


NODES: dict[str, Callable[[Making, Broker, str, float], Node]] = {
    "ingress": ingress,
    "egress": egress,
    "workers": worker,
    "dispatchers": dispatcher,
}
