"""The dispatcher of an inner task: the items it holds, sends and commits."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from control.per_query.waiting_slots import completion_slot, waiting_slot
from operators.dispatch.dispatch_profile import device_kind, dispatch_profile
from operators.dispatch.dispatcher import Dispatcher
from operators.dispatch.task_dispatcher import TaskDispatcher
from schemas.effects import (
    COMPLETIONS,
    DEAD_LETTERS,
    OUTPUTS,
    PLANS,
    Arrived,
    Assign,
    Done,
    Effect,
    Send,
    Wake,
    Woke,
)
from schemas.pipeline import Pipeline
from schemas.records import (
    ANSWERED,
    Completion,
    Garbled,
    Item,
    Lease,
    Origin,
    Plan,
    Settings,
    Work,
)
from tests.builders import a_pipeline

RUN_S, SLO_S = 0.1, 1.0


def the_pipeline(dispatchers: int = 1) -> Pipeline:
    made = a_pipeline({"scan": ("read",), "read": ()}, ingress=2, comm_s=0.0, slo_s=SLO_S)
    tasks = tuple(replace(t, dispatch="fcfs" if t.name == "read" else "") for t in made.tasks)
    return replace(made, tasks=tasks, dispatchers=dispatchers)


def a_node(number: int = 0) -> TaskDispatcher:
    pipeline = the_pipeline()
    kinds = (device_kind("cpu", "v"), device_kind("cpu", "w"))
    profile = dispatch_profile(kinds, lambda *_: RUN_S, 1, by_variant=True)
    inner = Dispatcher(pipeline, profile, task=pipeline.task("read"))
    return TaskDispatcher("dispatcher-read-0", pipeline, "read", inner, incarnation=0.0)


def a_plan(workers: int, epoch: int = 1) -> Plan:
    leases = tuple(
        Lease(
            worker=f"w{n}", task="read", variant="vw"[n % 2], batch=1, slots=(n,), open_slot=n,
            type="cpu",
        )
        for n in range(workers)
    )  # fmt: skip
    return Plan(
        pipeline=the_pipeline().name, epoch=epoch, issued_s=0.0, reason="",
        settings=Settings(policy="static", slo_s=SLO_S), leases=leases,
    )  # fmt: skip


def crops(offset: int, count: int, deadline_s: float = SLO_S) -> Arrived:
    items = tuple(Item(branch=(0, n), credit=1 << 20, value=n) for n in range(count))
    work = Work(
        query_id=f"q{offset}", origin=Origin(0, offset), task="read", created_s=0.0,
        deadline_s=deadline_s, epoch=1, items=items,
    )  # fmt: skip
    return Arrived(work, "waiting.read", 0, offset, 0.0)


def done(work: Work, slot: int) -> Arrived:
    completion = Completion(
        query_id=work.query_id, origin=work.origin, slot=slot, worker=f"w{slot}", type="cpu",
        setting=f"read/{'vw'[slot % 2]}", size=1, queued_s=0.0, run_s=RUN_S, outcome=ANSWERED,
    )  # fmt: skip
    return Arrived(completion, COMPLETIONS, 2, 0, 0.0)


def a_started(workers: int = 2) -> TaskDispatcher:
    node = a_node()
    node.handle(Woke(), 0.0)
    node.handle(Arrived(a_plan(workers), PLANS, 0, 0, 0.0), 0.0)
    node.handle(Woke(), 0.0)
    return node


def sent(effects: list[Effect]) -> list[tuple[int, int]]:
    """Return slot and value of each item sent to a worker."""
    sends = [e for e in effects if type(e) is Send and e.topic == "work.read"]
    return [(e.slot, item.value) for e in sends for item in e.record.items]


def committed(effects: list[Effect]) -> list[Done]:
    return [d for e in effects if type(e) is Assign and e.topic == "waiting.read" for d in e.done]


def test_it_reads_its_items_and_its_completions_once_there_is_a_plan() -> None:
    node = a_node()
    assert Assign(PLANS, (0,)) in node.handle(Woke(), 0.0)
    effects = node.handle(Arrived(a_plan(1), PLANS, 0, 0, 0.0), 0.0)
    # Partitions 0 and 1 of the completions are those of the two ingress processes.
    assert effects[:2] == [Assign(COMPLETIONS, (2,)), Assign("waiting.read", (0,))]


def test_each_item_goes_to_a_free_worker_and_the_record_is_committed_with_the_last() -> None:
    node = a_started()
    assert node.handle(crops(7, 3), 0.0) == [Wake(0.0)]
    first = node.handle(Woke(), 0.0)
    assert sorted(sent(first)) == [(0, 0), (1, 1)]
    assert committed(first) == []
    work = crops(7, 3).record
    assert isinstance(work, Work)
    node.handle(done(work, 1), RUN_S)
    last = node.handle(Woke(), RUN_S)
    assert sent(last) == [(1, 2)]
    assert committed(last) == [Done(0, 8)]


def test_a_record_that_comes_again_is_not_held_twice() -> None:
    node = a_started()
    node.handle(crops(7, 1), 0.0)
    assert node.handle(crops(7, 1), 0.0) == []
    assert len(sent(node.handle(Woke(), 0.0))) == 1


def test_an_item_that_no_worker_can_finish_in_time_ends_and_is_committed() -> None:
    node = a_started(workers=1)
    node.handle(crops(3, 2, deadline_s=0.15), 0.0)
    node.handle(Woke(), 0.0)
    effects = node.handle(Woke(), 0.06)
    (gone,) = [e for e in effects if type(e) is Send and e.topic == OUTPUTS]
    assert isinstance(gone.record, Work)
    (item,) = gone.record.items
    assert (gone.record.task, item.branch) == ("", (0, 1))
    assert item.end is not None
    assert item.end.task == "read"
    assert "every device would finish" in item.end.reason
    assert committed(effects) == [Done(0, 4)]


def test_an_unreadable_record_is_a_dead_letter() -> None:
    node = a_started()
    garbled = Garbled(reason="no Avro", value=b"x", headers=(), id="")
    effects = node.handle(Arrived(garbled, "waiting.read", 0, 5, 0.0), 0.0)
    assert [e.topic for e in effects if type(e) is Send] == [DEAD_LETTERS]
    assert committed(effects) == [Done(0, 6)]


def test_devices_of_one_type_that_run_unlike_variants_have_latencies_of_their_own() -> None:
    seconds = {device_kind("cpu", "v"): 0.1, device_kind("cpu", "w"): 0.4}
    profile = dispatch_profile(tuple(seconds), lambda kind, *_: seconds[kind], 1, by_variant=True)
    pipeline = the_pipeline()
    tasks = tuple(replace(t, dispatch="earliest" if t.dispatch else "") for t in pipeline.tasks)
    pipeline = replace(pipeline, tasks=tasks)
    inner = Dispatcher(pipeline, profile, task=pipeline.task("read"))
    node = TaskDispatcher("d", pipeline, "read", inner, incarnation=0.0)
    plan = a_plan(2)
    node.handle(Arrived(plan, PLANS, 0, 0, 0.0), 0.0)
    node.handle(crops(0, 1), 0.0)
    assert [slot for slot, _ in sent(node.handle(Woke(), 0.0))] == [0]
    swapped = tuple(changed(x, variant="wv"[n]) for n, x in enumerate(plan.leases))
    other = Dispatcher(pipeline, profile, task=pipeline.task("read"))
    node = TaskDispatcher("d", pipeline, "read", other, incarnation=0.0)
    node.handle(Arrived(changed(plan, leases=swapped), PLANS, 0, 0, 0.0), 0.0)
    node.handle(crops(0, 1), 0.0)
    assert [slot for slot, _ in sent(node.handle(Woke(), 0.0))] == [1]


@pytest.mark.parametrize("dispatchers", [1, 3])
def test_completions_go_to_the_dispatcher_that_holds_the_items(dispatchers: int) -> None:
    pipeline = the_pipeline(dispatchers)
    for origin in (Origin(0, 5), Origin(3, 9)):
        number = waiting_slot(origin, dispatchers)
        assert 0 <= number < dispatchers
        assert completion_slot(pipeline, "read", origin) == pipeline.ingress + number
        assert completion_slot(pipeline, "scan", origin) == origin.partition % pipeline.ingress
    assert pipeline.completion_slots == pipeline.ingress + dispatchers
