"""control/rollout/placement.py and control/rollout/leases.py: which worker runs which variant
and reads which slots."""

import pytest

from control.problem.problem import Allocation, Replicas
from control.rollout.leases import after, arrange, running, without
from control.rollout.next_plan import Target
from control.rollout.placement import Member, place
from schemas.records import Lease, Plan, Settings
from tests.control_world import a_lease, some_slots


def wanted(**counts: int) -> Allocation:
    """Return an allocation; ``read__vit=2`` means two workers on read/vit."""
    return Allocation(
        tuple(
            Replicas(task=key.split("__")[0], variant=key.split("__")[1], batch=4, count=count)
            for key, count in counts.items()
        )
    )


def held(*leases: Lease) -> dict[str, Lease]:
    return {lease.worker: lease for lease in leases}


def members(*names: str, serves: str = "", **quiet: bool) -> list[Member]:
    return [Member(name=name, serves=serves, quiet=quiet.get(name, False)) for name in names]


def posts(allocation: Allocation, them: list[Member], leases: dict[str, Lease]) -> dict[str, str]:
    return {name: post.key for name, post in place(them, leases, allocation).items()}


def test_worker_keeps_the_variant_that_it_runs() -> None:
    leases = held(a_lease("b", "read", "vit", [0], 0), a_lease("c", "locate", "net", [0], 0))
    assert posts(wanted(locate__net=1, read__vit=2), members("a", "b", "c"), leases) == {
        "a": "read/vit",
        "b": "read/vit",
        "c": "locate/net",
    }


def test_workers_keep_their_batches_where_a_resumed_plan_has_two_of_a_variant() -> None:
    """Only as many workers as ran the last batch got a post; the others drained."""
    leases = held(
        a_lease("w0", "read", "vit", (0,), 0, batch=8),
        a_lease("w1", "read", "vit", (1,), 1, batch=2),
        a_lease("w2", "read", "vit", (2,), 2, batch=8),
        a_lease("w3", "read", "vit", (3,), 3, batch=2),
        a_lease("w4", "read", "vit", (4,), 4, batch=8),
    )
    plan = Plan(
        pipeline="postcode", epoch=1, issued_s=0.0, reason="",
        settings=Settings(policy="loki", slo_s=1.0), leases=tuple(leases.values()),
    )  # fmt: skip
    found = place(members(*leases, serves="read"), leases, Target.of(plan).allocation)
    assert {name: post.batch for name, post in found.items()} == {
        name: lease.batch for name, lease in leases.items()
    }


def test_a_swap_within_the_task_comes_before_a_drain() -> None:
    leases = held(
        a_lease("a", "locate", "net", [0], 0),
        a_lease("b", "locate", "net", [1], 1),
        a_lease("c", "read", "forest", [0], 0),
    )
    assert posts(wanted(locate__net=1, read__vit=2), members("a", "b", "c"), leases) == {
        "a": "locate/net",
        "b": "read/vit",
        "c": "read/vit",
    }


def test_an_idle_worker_that_has_the_variant_loaded_is_preferred() -> None:
    idle = [Member(name="a"), Member(name="b", loaded="read/vit")]
    assert posts(wanted(read__vit=1), idle, {}) == {"b": "read/vit"}


# Workers for read/vit, the best first: what each reports as loaded, and its lease.
BY_FITNESS = [
    ("read/vit", ("read", "vit", 0)),
    ("read/vit", ("read", "vit", -1)),  # draining
    ("read/vit", None),
    ("read/forest", ("read", "forest", 0)),
    ("read/forest", ("read", "forest", -1)),
    ("", None),
    ("locate/net", ("locate", "net", 0)),
]


@pytest.mark.parametrize("better", range(len(BY_FITNESS) - 1))
def test_the_worker_that_fits_better_gets_the_variant(better: int) -> None:
    them, leases = [], {}
    # By name the one that fits less well would come first.
    for name, (loaded, lease) in zip("ba", BY_FITNESS[better : better + 2], strict=True):
        them.append(Member(name=name, loaded=loaded))
        if lease is not None:
            task, variant, opened = lease
            leases[name] = a_lease(name, task, variant, [0], opened)
    assert posts(wanted(read__vit=1), them, leases) == {"b": "read/vit"}


def test_workers_that_drain_take_no_new_work() -> None:
    leases = [
        a_lease("a", "read", "vit", [0], 0), a_lease("b", "read", "vit", [1], 1),
        a_lease("c", "read", "forest", [2], -1),
    ]  # fmt: skip
    assert running(leases) == {"read/vit": 2}


def test_a_drained_worker_is_given_nothing() -> None:
    idle = [Member(name="a", usable=False), Member(name="b")]
    assert posts(wanted(read__vit=2), idle, {}) == {"b": "read/vit"}


def test_newcomers_open_the_lowest_slots() -> None:
    them = members("a", "b", "c")
    found = arrange({}, them, place(them, {}, wanted(locate__net=1, read__vit=2)), some_slots())
    assert found == (
        a_lease("a", "locate", "net", [0], 0),
        a_lease("b", "read", "vit", [0], 0),
        a_lease("c", "read", "vit", [1], 1),
    )


def test_a_change_of_variant_moves_no_slot() -> None:
    leases = held(a_lease("a", "read", "forest", [0, 2], 0), a_lease("b", "read", "vit", [1], 1))
    them = members("a", "b")
    found = arrange(leases, them, place(them, leases, wanted(read__vit=2)), some_slots(read=2))
    assert found == (
        a_lease("a", "read", "vit", [0, 2], 0),
        a_lease("b", "read", "vit", [1], 1),
    )


def test_a_lost_workers_slots_go_to_the_least_laden_with_its_variant() -> None:
    leases = held(
        a_lease("a", "read", "forest", [0], 0),
        a_lease("b", "read", "vit", [1], 1),
        a_lease("c", "read", "vit", [2], 2),
        a_lease("d", "read", "vit", [3, 4], 3),
    )
    assert without(leases, ["d"], some_slots(read=4)) == (
        a_lease("a", "read", "forest", [0], 0),
        a_lease("b", "read", "vit", [1, 3], 1),
        a_lease("c", "read", "vit", [2, 4], 2),
    )


def test_a_draining_worker_adopts_no_slot_while_another_serves() -> None:
    leases = held(
        a_lease("a", "read", "vit", [0], -1),
        a_lease("b", "read", "forest", [1, 2], 1),
        a_lease("c", "read", "vit", [3], 3),
    )
    assert without(leases, ["c"], some_slots(read=3)) == (
        a_lease("a", "read", "vit", [0], -1),
        a_lease("b", "read", "forest", [1, 2, 3], 1),
    )


def test_slots_of_a_task_without_workers_wait_for_the_first() -> None:
    leases = held(a_lease("a", "read", "vit", [0, 1], 0))
    slots = some_slots(read=1)
    assert without(leases, ["a"], slots) == ()
    them = members("b")
    found = arrange({}, them, place(them, {}, wanted(read__vit=1)), slots)
    assert found == (a_lease("b", "read", "vit", [0, 1], 0),)


def test_a_worker_without_a_post_drains_first() -> None:
    leases = held(a_lease("a", "read", "vit", [1], 1), a_lease("b", "read", "vit", [0], 0))
    closed = a_lease("b", "read", "vit", [0], -1)
    slots = some_slots(read=1)
    them = members(
        "a", "b", serves="read", b=True
    )  # silence does not count before the worker learns of the drain
    first = arrange(leases, them, place(them, leases, wanted(read__vit=1)), slots)
    assert first == (leases["a"], closed)

    draining = held(*first)
    busy = members("a", "b", serves="read")
    assert arrange(draining, busy, place(busy, draining, wanted(read__vit=1)), slots) == first
    assert arrange(draining, them, place(them, draining, wanted(read__vit=1)), slots) == (
        a_lease("a", "read", "vit", [0, 1], 1),
    )


def test_the_last_of_a_task_stays_open_until_its_successor_serves() -> None:
    leases = held(a_lease("a", "read", "vit", [0], 0))
    slots = some_slots(read=0)
    them = [Member(name="a", serves="read", usable=False), Member(name="b")]
    found = arrange(leases, them, place(them, leases, wanted(read__vit=1)), slots)
    assert found == (leases["a"], a_lease("b", "read", "vit", [1], 1))
    there = [them[0], Member(name="b", serves="read")]
    second = held(*found)
    assert arrange(second, there, place(there, second, wanted(read__vit=1)), slots) == (
        a_lease("a", "read", "vit", [0], -1),
        second["b"],
    )


def test_the_last_of_a_task_gives_its_slot_up_where_its_successors_need_them_all() -> None:
    leases = held(a_lease("a", "read", "vit", [0], 0))
    slots = some_slots(2, read=0)
    them = [Member(name="a", serves="read", usable=False), Member(name="b"), Member(name="c")]
    found = arrange(leases, them, place(them, leases, wanted(read__vit=2)), slots)
    assert [(lease.worker, lease.open_slot >= 0) for lease in found] == [
        ("a", False), ("b", True), ("c", True),
    ]  # fmt: skip


def test_as_many_workers_stay_open_as_the_task_has_slots_beside_its_successors() -> None:
    leases = held(a_lease("a", "read", "vit", [0], 0), a_lease("b", "read", "vit", [1], 1))
    them = [
        Member(name="a", serves="read", usable=False),
        Member(name="b", serves="read", usable=False),
        Member(name="c"),
    ]
    chosen = place(them, leases, wanted(read__vit=1))
    for spare, stay in ((0, []), (1, ["a"]), (2, ["a", "b"])):
        slots = some_slots(1 + spare, read=1)
        found = arrange(leases, them, chosen, slots)
        assert [x.worker for x in found if x.open_slot >= 0] == [*stay, "c"]


def test_a_worker_that_drains_already_does_not_open_again_for_a_successor() -> None:
    leases = held(a_lease("a", "read", "vit", [0], -1), a_lease("b", "read", "vit", [1], 1))
    them = [
        Member(name="a", serves="read", usable=False),
        Member(name="b", serves="read", usable=False),
        Member(name="c"),
    ]
    found = arrange(leases, them, place(them, leases, wanted(read__vit=1)), some_slots(3, read=1))
    assert found == (
        a_lease("a", "read", "vit", [0], -1),
        a_lease("b", "read", "vit", [1], 1),
        a_lease("c", "read", "vit", [2], 2),
    )


def test_last_worker_of_a_task_drains_at_once_without_a_successor() -> None:
    leases = held(a_lease("a", "read", "vit", [0], 0))
    them = [Member(name="a", serves="read", usable=False)]
    found = arrange(leases, them, place(them, leases, wanted(read__vit=1)), some_slots(read=0))
    assert found == (a_lease("a", "read", "vit", [0], -1),)


def test_a_draining_worker_that_is_wanted_again_opens_its_own_slot() -> None:
    leases = held(a_lease("b", "read", "vit", [0, 1], -1))
    them = members("a", "b")
    found = arrange(leases, them, place(them, leases, wanted(read__vit=2)), some_slots(read=1))
    assert found == (
        a_lease("a", "read", "vit", [1], 1),
        a_lease("b", "read", "vit", [0], 0),
    )


def test_a_newcomer_leaves_a_draining_workers_slots_to_it_while_there_are_others() -> None:
    leases = held(a_lease("b", "read", "vit", [0], -1))
    them = [Member(name="a"), Member(name="b", usable=False)]
    chosen = place(them, leases, wanted(read__vit=1))
    assert arrange(leases, them, chosen, some_slots(read=0)) == (
        a_lease("a", "read", "vit", [1], 1),
        a_lease("b", "read", "vit", [0], -1),
    )
    assert arrange(leases, them, chosen, some_slots(1, read=0)) == (
        a_lease("a", "read", "vit", [0], 0),
        a_lease("b", "read", "vit", [], -1),
    )


def test_the_highest_slot_ever_open_is_remembered() -> None:
    leases = [a_lease("a", "read", "vit", [0, 3], 0)]
    assert after(some_slots(locate=1, read=2), leases) == some_slots(locate=1, read=3)


def test_an_allocation_that_tells_kinds_of_devices_apart_is_placed_on_them() -> None:
    them = [Member(name=n, device=d) for n, d in (("a", "cpu"), ("b", "cuda:0"), ("c", "cuda:1"))]
    replicas = tuple(
        Replicas(task="read", variant=variant, batch=4, count=1, device=kind)
        for variant, kind in (("vit", "cuda:1"), ("vit", "cuda"), ("forest", "cpu"))
    )
    # cuda:0 and cuda:1 were measured separately.
    posts = place(them, {}, Allocation(replicas), {"cpu": "cpu", "cuda:0": "cuda"})
    assert {name: (p.variant, p.device) for name, p in posts.items()} == {
        "a": ("forest", "cpu"), "b": ("vit", "cuda"), "c": ("vit", "cuda:1"),
    }  # fmt: skip
