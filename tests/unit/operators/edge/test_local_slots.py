"""Slots of an edge's workers: committed, held and forwarded records."""

from hypothesis import given
from hypothesis import strategies as st

from operators.edge.local_slots import IN_MEMORY, LocalSlots
from schemas.effects import Done
from schemas.records import Item, Origin, Work

TOPIC = "work.scan"
PLACE = (TOPIC, 3)


def a_work(offset: int) -> Work:
    return Work(
        query_id=str(offset), origin=Origin(0, offset), task="scan", created_s=0.0, deadline_s=1.0,
        epoch=1, items=(Item(value=b""),),
    )  # fmt: skip


def reading() -> LocalSlots:
    local = LocalSlots()
    local.read("w", TOPIC, (3,))
    return local


def hand(local: LocalSlots, offset: int) -> int:
    work = a_work(offset)
    local.hold(work.origin)
    return local.number(PLACE, IN_MEMORY, work)


def test_the_brokers_offsets_are_committed_and_the_others_are_not() -> None:
    local = reading()
    numbers = [local.number(PLACE, 40, None), hand(local, 7), local.number(PLACE, 41, None)]
    assert numbers == [0, 1, 2]
    assert local.finish(PLACE, 2) == Done(3, 41)
    assert local.finish(PLACE, 3) == Done(3, 42)
    assert hand(local, 8) == 3
    assert local.finish(PLACE, 4) is None


def test_a_query_is_held_while_a_piece_of_its_work_is_here() -> None:
    local = reading()
    hand(local, 7)
    hand(local, 7)
    hand(local, 9)
    assert local.oldest(0) == 7
    local.finish(PLACE, 1)
    assert local.oldest(0) == 7
    local.finish(PLACE, 2)
    assert local.oldest(0) == 9
    local.finish(PLACE, 3)
    assert local.oldest(0) is None


def test_a_slot_that_is_given_up_returns_the_work_that_was_handed_over() -> None:
    local = reading()
    local.number(PLACE, 40, None)
    hand(local, 7)
    assert [(slot, work.origin.offset) for slot, work in local.read("w", TOPIC, ())] == [(3, 7)]
    assert local.oldest(0) is None
    assert local.finish(PLACE, 2) is None  # the worker had not received it
    local.read("w", TOPIC, (3,))
    assert local.number(PLACE, 41, None) == 0


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=30), st.data())
def test_committed_records_are_finished_and_open_records_are_held(
    records: list[int | None], data: st.DataObject
) -> None:
    """Records are the broker's (None) or work of a query; a prefix of them is finished."""
    local, broker = reading(), 100
    for record in records:
        if record is None:
            local.number(PLACE, broker, None)
            broker += 1
        else:
            hand(local, record)
    below = data.draw(st.integers(0, len(records)))
    done = local.finish(PLACE, below)
    finished = sum(record is None for record in records[:below])
    assert done == (Done(3, 100 + finished) if finished else None)
    still = [record for record in records[below:] if record is not None]
    assert local.oldest(0) == min(still, default=None)
