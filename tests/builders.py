"""Build records, plans and pipelines for tests, with defaults to override."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from operators.reporter import INTERVAL_S
from schemas.codec.older_releases import FILL, reason_code
from schemas.effects import (
    OUTPUTS,
    PLANS,
    QUERIES,
    Arrived,
    Effect,
    Event,
    Infer,
    Inferred,
    Loaded,
    Node,
    Send,
    Wake,
    work_topic,
)
from schemas.enumerations import ReasonCode
from schemas.pipeline import Pipeline, Policy, Task, Variant
from schemas.records import (
    ANSWERED,
    REFUSED,
    Answer,
    End,
    Hop,
    Item,
    Lease,
    Notice,
    Noticed,
    Origin,
    Plan,
    Query,
    Record,
    Report,
    Route,
    Settings,
    Value,
    Work,
)
from schemas.release import READS, RELEASE

SLO_S = 0.5
DECLARED = {READS: float(RELEASE)}  # among the counts of every report
GRACE_S = 0.25


def a_variant(task: str, name: str = "v", batch: int = 4) -> Variant:
    return Variant(task=task, name=name, operator="module:Class", batch=batch)


def a_pipeline(children: Mapping[str, Sequence[str]] | None = None, **changes: Any) -> Pipeline:
    """Return a pipeline with these tasks and children, root first; variants are v and w."""
    shape = {"read": ()} if children is None else children
    tasks = tuple(
        Task(
            name=name,
            variants=(a_variant(name), a_variant(name, "w")),
            children=tuple(below),
            slots=8,
        )
        for name, below in shape.items()
    )
    pipeline = Pipeline(
        name="p",
        slo_s=SLO_S,
        tasks=tasks,
        policies=(Policy(name="static"),),
        policy="static",
        input="avro",
        grace_s=GRACE_S,
        egress_partitions=2,
    )
    return replace(pipeline, **changes)


def a_lease(
    worker: str = "w", task: str = "read", variant: str = "v", batch: int = 4,
    slots: tuple[int, ...] = (0,), open_slot: int | None = None,
) -> Lease:  # fmt: skip
    """Return a lease; the default open slot is its first one."""
    opened = (slots[0] if slots else -1) if open_slot is None else open_slot
    return Lease(
        worker=worker, task=task, variant=variant, batch=batch, slots=slots, open_slot=opened
    )


def a_plan(leases: Iterable[Lease] = (), epoch: int = 1, **changes: Any) -> Plan:
    """Return a plan that routes equal shares to the open slots of its leases."""
    listed = tuple(leases)
    opened = [lease for lease in listed if lease.open_slot >= 0]
    count = {each.task: sum(other.task == each.task for other in opened) for each in opened}
    plan = Plan(
        pipeline="p",
        epoch=epoch,
        issued_s=0.0,
        reason="test",
        settings=Settings(policy="static", slo_s=SLO_S),
        leases=listed,
        routes=tuple(Route(each.task, each.open_slot, 1 / count[each.task]) for each in opened),
    )
    return structs.replace(plan, **changes)


def an_item(value: Value = b"x", branch: tuple[int, ...] = (), **changes: Any) -> Item:
    return Item(branch=branch, value=value, **changes)


def a_work(
    offset: int = 0, *items: Item, task: str = "read", deadline_s: float = SLO_S, **changes: Any
) -> Work:
    """Return work of the query at this offset of input partition 0, created at time 0."""
    work = Work(
        query_id=f"q{offset}",
        origin=Origin(0, offset),
        task=task,
        created_s=0.0,
        deadline_s=deadline_s,
        epoch=1,
        items=items or (an_item(),),
    )
    return structs.replace(work, **changes)


def a_hop(**changes: Any) -> Hop:
    hop = Hop(
        task="read", variant="v", worker="w", epoch=1, received_s=0.1, started_s=0.1,
        finished_s=0.2, batch=1, released="idle",
    )  # fmt: skip
    return structs.replace(hop, **changes)


def an_end(outcome: str, task: str, reason: str = "") -> End:
    """Return the end of an item, with the code of its reason."""
    return End(outcome, task, reason, reason_code(outcome, task, reason))


def coded(answer: Answer) -> Answer:
    """Return the answer with the codes of its reasons."""
    row = {**structs.asdict(answer), "ends": [structs.asdict(end) for end in answer.ends]}
    FILL["Answer"](row)
    ends = tuple(End(**end) for end in row["ends"])
    return structs.replace(answer, reason_code=row["reason_code"], ends=ends)


def an_ended(
    value: Value = None, branch: tuple[int, ...] = (), *, outcome: str = ANSWERED,
    task: str = "read", reason: str = "", **changes: Any,
) -> Item:  # fmt: skip
    """Return an ended item with one hop, as egress receives it."""
    end = an_end(outcome, task, reason)
    return Item(branch=branch, value=value, end=end, **{"path": (a_hop(),), **changes})


def a_noticed(offset: int = 0, **changes: Any) -> Noticed:
    noticed = Noticed(query_id=f"q{offset}", offset=offset, created_s=0.0, deadline_s=SLO_S)
    code = reason_code(REFUSED, "", changes["refused"]) if "refused" in changes else ReasonCode.NONE
    return structs.replace(noticed, **{"reason_code": code, **changes})


def a_notice(*offsets: int, upto: int | None = None, partition: int = 0) -> Notice:
    """Return a notice that admits the queries at these offsets."""
    return Notice(
        partition=partition,
        upto=offsets[-1] + 1 if upto is None else upto,
        queries=tuple(a_noticed(offset) for offset in offsets),
    )


def an_answer(offset: int = 0, **changes: Any) -> Answer:
    answer = Answer(
        id=f"q{offset}", origin=Origin(0, offset), outcome=ANSWERED, created_s=0.0,
        deadline_s=SLO_S, answered_s=0.2, epoch=1,
    )  # fmt: skip
    return coded(structs.replace(answer, **changes))


def a_refusal(offset: int, reason: str, answered_s: float) -> Answer:
    return an_answer(
        offset, outcome=REFUSED, reason=reason, task="ingress", answered_s=answered_s, epoch=0
    )


def arrived(
    record: Record, offset: int = 0, slot: int = 0, at_s: float = 0.0, topic: str = ""
) -> Arrived:
    """Return the arrival of a record, by default on the usual topic of its type."""
    home = {Query: QUERIES, Notice: OUTPUTS, Plan: PLANS}
    if not topic:
        is_work = isinstance(record, Work) and record.task
        topic = work_topic(record.task) if is_work else home.get(type(record), OUTPUTS)
    return Arrived(record, topic, slot, offset, at_s)


def inferred(job: int, *outputs: Any, started_s: float = 0.1, finished_s: float = 0.2) -> Inferred:
    return Inferred(job, outputs, started_s, finished_s)


def told(node: Node, *events: tuple[Event, float]) -> list[Effect]:
    """Pass events to a node; return the effects of the last one without heartbeats."""
    effects: Sequence[Effect] = []
    for event, now in events:
        effects = node.handle(event, now)
    return quiet(effects)


def quiet(effects: Iterable[Effect]) -> list[Effect]:
    """Return the effects without reports and the wake-up for the next."""
    listed = list(effects)
    nexts = [Wake(report.sent_s + INTERVAL_S) for report in reports(listed)]
    return [each for each in listed if not reports([each]) and each not in nexts]


def reports(effects: Iterable[Effect]) -> list[Report]:
    """Return the reports among the effects."""
    return [e.record for e in effects if isinstance(e, Send) and isinstance(e.record, Report)]


def sent(effects: Iterable[Effect], topic: str) -> list[Record]:
    """Return the records that the effects send to a topic."""
    return [e.record for e in effects if isinstance(e, Send) and e.topic == topic]


def inferring(effects: Iterable[Effect]) -> list[Infer]:
    """Return the batches among the effects."""
    return [e for e in effects if isinstance(e, Infer)]


def loaded(variant: str = "read/v", seconds: float = 1.0) -> Loaded:
    return Loaded(variant, seconds)
