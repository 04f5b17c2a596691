"""The worker under tables: it holds their variants and looks up every batch."""

from typing import Any

import pytest
from msgspec.structs import replace

from operators.serving.worker import Worker
from schemas.effects import PLANS, Arrived, Effect, Failed, Infer, Load, Woke
from schemas.enumerations import NodeState
from schemas.pipeline import Policy
from schemas.records import DROPPED, Plan, Selection, SelectionTable, Settings
from tests.builders import (
    a_lease,
    a_pipeline,
    a_plan,
    a_work,
    an_item,
    arrived,
    inferred,
    inferring,
    loaded,
    quiet,
    reports,
    sent,
    told,
)

# A single item with 100 ms of slack left gets w; several items or less slack get v.
CALM = SelectionTable(qps=100.0, rows=((0, 0, 1, 1, 1, 1), (0, 0, 2), (0, 0, 3)))
BUSY = SelectionTable(qps=200.0, rows=((0, 0, 1), (0, 0, 1)))
ONE_BY_ONE = SelectionTable(qps=200.0, rows=((0, 0, 1), (0, 0, 1), (0, 0, 1), (0, 0, 1)))
MADE = Selection(
    pipeline="p", task="read", policy="ramsis", issued_s=0.0, slo_s=0.2, workers=4,
    variants=("v", "w"), levels_s=(0.0, 0.1, 0.2), tables=(CALM, BUSY),
)  # fmt: skip


def a_worker(
    dropping: str = "none", capped: bool = False, paced: bool = False, batch: int = 4,
    classes: dict[str, float] | None = None, **changes: Any,
) -> Worker:  # fmt: skip
    ramsis = Policy(
        name="ramsis", kind="ramsis", dropping=dropping, capped=capped, paced=paced,
        batch={"read/v": batch},
    )  # fmt: skip
    policies = (Policy(name="static"), ramsis)
    pipeline = a_pipeline(policies=policies, comm_s=0.0, slo_classes=classes or {})
    return Worker("w", pipeline, "cpu", incarnation=0.0, **changes)


def a_ramsis_plan(epoch: int = 1, policy: str = "ramsis", **lease: Any) -> Plan:
    return a_plan([a_lease(**lease)], epoch, settings=Settings(policy=policy, slo_s=0.2))


def tables(selection: Selection = MADE) -> Arrived:
    return Arrived(selection, PLANS, 0, 1, 0.0)


def following(worker: Worker | None = None) -> Worker:
    """Return a worker that holds v and w, has tables, and has run for a while."""
    worker = worker or a_worker()
    events = [Woke(), arrived(a_ramsis_plan()), loaded("read/v"), tables(), loaded("read/w")]
    told(worker, *[(event, 0.0) for event in events])
    return worker


def run(worker: Worker, *offsets: int, now: float, created_s: float) -> list[Infer]:
    for offset in offsets:
        work = a_work(offset, created_s=created_s, deadline_s=created_s + 0.2)
        worker.handle(arrived(work, offset), now)
    return inferring(worker.handle(Woke(), now))


def test_the_leases_variant_comes_first_then_the_others_one_by_one() -> None:
    worker = a_worker()
    assert told(worker, (Woke(), 0.0), (tables(), 0.0)) == []
    assert Load("read/v") in told(worker, (arrived(a_ramsis_plan()), 0.0))
    assert told(worker, (loaded("read/v"), 0.1)) == [Load("read/w", beside=True)]
    assert told(worker, (loaded("read/w"), 0.2)) == []


def test_it_chooses_by_slack_and_queue() -> None:
    worker = following()
    assert run(worker, 0, now=2.0, created_s=2.0) == [Infer(1, "read/w", (b"x",))]
    worker.handle(inferred(1, "out"), 2.1)
    assert run(worker, 1, now=2.15, created_s=2.0) == [Infer(2, "read/v", (b"x",))]
    worker.handle(inferred(2, "out"), 2.2)
    assert run(worker, 2, 3, now=3.0, created_s=3.0) == [Infer(3, "read/v", (b"x",) * 2)]


def test_until_a_window_of_load_was_seen_the_table_of_the_highest_counts() -> None:
    worker = following()
    assert run(worker, 0, now=0.3, created_s=0.3) == [Infer(1, "read/v", (b"x",))]


def test_the_load_is_unknown_from_the_first_tables_on_and_newer_ones_keep_it() -> None:
    worker = a_worker()
    events = [Woke(), arrived(a_ramsis_plan()), loaded("read/v"), tables(), loaded("read/w")]
    told(worker, *[(event, 100.0) for event in events])
    assert run(worker, 0, now=100.3, created_s=100.3) == [Infer(1, "read/v", (b"x",))]
    worker.handle(inferred(1, "out"), 100.4)
    told(worker, (tables(replace(MADE, issued_s=1.0)), 102.0))
    assert run(worker, 1, now=102.1, created_s=102.1) == [Infer(2, "read/w", (b"x",))]


def test_it_runs_what_a_dispatcher_sent_and_not_what_its_own_tables_say() -> None:
    worker = following()
    for offset, (follow, variant) in enumerate([(1, "w"), (0, "w"), (0, "v")]):
        work = a_work(offset, created_s=2.0, deadline_s=2.2)
        worker.handle(arrived(replace(work, follow=follow, variant=variant), offset), 2.0)
    assert inferring(worker.handle(Woke(), 2.0)) == [Infer(1, "read/w", (b"x",) * 2)]
    (ended,) = [inferring(worker.handle(inferred(1, "out", "out"), 2.1))]
    assert ended == [Infer(2, "read/v", (b"x",))]


def test_a_load_above_a_tables_own_takes_the_next() -> None:
    worker = following()
    for offset in range(40):
        run(worker, offset, now=1.0 + offset / 40, created_s=1.0 + offset / 40)
        worker.handle(inferred(offset + 1, "out"), 1.0 + offset / 40)
    assert run(worker, 40, now=2.0, created_s=2.0) == [Infer(41, "read/v", (b"x",))]


def test_another_variant_substitutes_for_one_not_loaded_yet() -> None:
    worker = a_worker()
    events = [Woke(), arrived(a_ramsis_plan()), loaded("read/v"), tables()]
    told(worker, *[(event, 0.0) for event in events])
    assert run(worker, 0, now=2.0, created_s=2.0) == [Infer(1, "read/v", (b"x",))]


def test_a_variant_that_cannot_be_held_is_reported_and_not_tried_again_at_once() -> None:
    worker = a_worker()
    events = [Woke(), arrived(a_ramsis_plan()), loaded("read/v"), tables()]
    told(worker, *[(event, 0.0) for event in events])
    assert told(worker, (Failed("read/w", "no memory left"), 0.1)) == []
    (report,) = reports(worker.handle(Woke(), 0.3))
    assert (report.state, report.error) == (NodeState.FAILED, "no memory left")
    assert told(worker, (tables(replace(MADE, issued_s=1.0)), 0.4)) == []
    assert run(worker, 0, now=2.0, created_s=2.0) == [Infer(1, "read/v", (b"x",))]


def test_another_policy_ends_selection_and_unloads_the_other_variants() -> None:
    worker = following()
    plan = a_ramsis_plan(2, "static")
    assert Load("read/v") in told(worker, (arrived(plan), 1.0))
    worker.handle(loaded("read/v", 0.0), 1.0)
    assert run(worker, 0, now=2.0, created_s=2.0) == [Infer(1, "read/v", (b"x",))]
    worker.handle(inferred(1, "out"), 2.1)
    back = told(worker, (arrived(a_ramsis_plan(3)), 2.2))
    assert Load("read/w", beside=True) in back


def test_newer_tables_are_in_force_from_the_next_batch_on() -> None:
    worker = following()
    assert run(worker, 0, now=2.0, created_s=2.0) == [Infer(1, "read/w", (b"x",))]
    told(worker, (tables(replace(MADE, tables=(BUSY,))), 2.0))
    worker.handle(inferred(1, "out"), 2.1)
    assert run(worker, 1, now=3.0, created_s=3.0) == [Infer(2, "read/v", (b"x",))]


def test_a_lease_of_another_variant_takes_what_is_held() -> None:
    worker = following()
    effects = told(worker, (arrived(a_ramsis_plan(2, variant="w")), 1.0))
    assert [e for e in effects if isinstance(e, Load)] == []
    assert run(worker, 0, now=2.0, created_s=2.0) == [Infer(1, "read/w", (b"x",))]


def test_other_pipelines_tables_and_those_that_cannot_be_followed_change_nothing() -> None:
    worker = following()
    for wrong in (
        replace(MADE, pipeline="other", tables=(BUSY,)),
        replace(MADE, task="none", tables=(BUSY,)),
        replace(MADE, variants=("v", "gone")),
        replace(MADE, policy="static", tables=(BUSY,)),
    ):
        assert quiet(worker.handle(tables(wrong), 1.0)) == []
    assert run(worker, 0, now=2.0, created_s=2.0) == [Infer(1, "read/w", (b"x",))]


def test_a_capped_policy_runs_what_is_late_anyway_in_the_leases_batches() -> None:
    worker = following(a_worker(latency=lambda variant, batch: 0.1, capped=True))
    for offset in range(6):
        worker.handle(arrived(a_work(offset, created_s=1.9, deadline_s=1.95), offset), 2.0)
    assert inferring(worker.handle(Woke(), 2.0)) == [Infer(1, "read/v", (b"x",) * 4)]


@pytest.mark.parametrize(
    ("capped", "took_s", "batch"), [(True, 0.125, 1), (True, 0.13, 3), (False, 0.13, 1)]
)
def test_only_a_capped_policy_leaves_its_tables_and_only_for_a_head_that_is_late(
    capped: bool, took_s: float, batch: int
) -> None:
    """The head has 125 ms; the table for three items says one."""
    worker = following(a_worker(latency=lambda variant, size: took_s, capped=capped))
    told(worker, (tables(replace(MADE, tables=(ONE_BY_ONE,))), 0.0))
    for offset in range(3):
        work = a_work(offset, created_s=1.925, deadline_s=2.125)
        worker.handle(arrived(work, offset), 2.0)
    (infer,) = inferring(worker.handle(Woke(), 2.0))
    assert len(infer.values) == batch


def test_the_whole_of_a_long_queue_is_no_more_than_a_variant_can_take() -> None:
    worker = following()
    assert run(worker, *range(9), now=2.0, created_s=2.0) == [Infer(1, "read/v", (b"x",) * 4)]


@pytest.mark.parametrize(
    ("classes", "left_s", "values"),
    [
        ({}, 0.1, [b"x"] * 3),
        ({"gold": 0.1}, 0.1, [b"gold", b"x"]),
        ({"gold": 0.1}, 0.17, [b"gold", b"x", b"x"]),
        ({"gold": 0.1}, 0.03, [b"x"] * 3),
    ],
)
def test_with_classes_tables_take_no_slack_items_that_make_an_urgent_one_late(
    classes: dict[str, float], left_s: float, values: list[bytes]
) -> None:
    """A batch takes 50 ms per item. With 30 ms left the urgent item is late in any."""
    worker = a_worker("deadline", classes=classes, latency=lambda variant, size: 0.05 * size)
    ends_s = 2.0 + left_s
    gold = a_work(0, an_item(value=b"gold"), created_s=ends_s - 0.1, deadline_s=ends_s)
    following(worker).handle(arrived(gold), 2.0)
    assert list(run(worker, 1, 2, 3, now=2.0, created_s=2.5)[0].values) == values


@pytest.mark.parametrize(("classes", "size"), [({}, 4), ({"gold": 0.2}, 2)])
def test_with_classes_tables_take_at_most_the_batch_of_the_plan(
    classes: dict[str, float], size: int
) -> None:
    worker = following(a_worker(classes=classes))
    worker.handle(arrived(a_ramsis_plan(2, batch=2)), 1.0)
    assert len(run(worker, *range(9), now=2.0, created_s=2.0)[0].values) == size


@pytest.mark.parametrize("batch", [2, 6])
def test_the_largest_batch_of_the_policy_replaces_that_of_the_variant(batch: int) -> None:
    worker = following(a_worker(batch=batch))
    assert run(worker, *range(9), now=2.0, created_s=2.0) == [Infer(1, "read/v", (b"x",) * batch)]


def test_items_that_no_batch_can_save_are_dropped_under_a_dropping_policy() -> None:
    worker = following(a_worker("deadline", latency=lambda variant, batch: 0.15))
    worker.handle(arrived(a_work(0, created_s=1.9, deadline_s=2.1)), 2.0)
    effects: list[Effect] = worker.handle(Woke(), 2.0)
    assert inferring(effects) == []
    (work,) = sent(effects, "outputs")
    assert [item.end.outcome for item in work.items] == [DROPPED]  # type: ignore[union-attr]


def test_a_device_that_is_slower_than_its_profile_chooses_as_if_it_had_less_slack() -> None:
    def variants(paced: bool, took_s: float) -> list[str]:
        worker = following(a_worker(paced=paced, planned=lambda variant, batch: 0.02))
        ran = []
        for job in range(1, 5):
            now = 1.0 + job
            ran += [each.variant for each in run(worker, job, now=now, created_s=now)]
            worker.handle(
                inferred(job, "out", started_s=now, finished_s=now + took_s), now + took_s
            )
        return ran

    assert variants(paced=True, took_s=0.02) == ["read/w"] * 4
    # 0.2 s of slack correspond to 0.067 s in the profile, for which the table says v.
    assert variants(paced=True, took_s=0.06) == ["read/w", "read/w", "read/v", "read/v"]
    assert variants(paced=False, took_s=0.06) == ["read/w"] * 4
