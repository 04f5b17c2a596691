"""Packing: one Work per query, task, slot and size for all of its items there.

A frame with twenty cars costs one message per slot, not twenty.
"""

from collections.abc import Iterable, Mapping, Sequence

from control.per_query.routing import WeightedRoundRobin
from operators.drop_reasons import dropped, no_worker
from operators.record_size import MOST_BYTES, record_size
from schemas.effects import OUTPUTS, Effect, Send, work_topic
from schemas.records import Item, Work

# (the work an item came with, the task it goes to or "" for egress, the item)
Onward = tuple[Work, str, Item]

BY_TURN = -2  # in place of a slot: the next slot by the plan's shares


def packed(
    onward: Iterable[Onward],
    spreads: Mapping[str, WeightedRoundRobin],
    epoch: int,
    egress_partitions: int,
    chosen: Sequence[int] = (),
) -> list[Effect]:
    """Return the sends of ``onward``, in the order of each parcel's first item.

    ``chosen`` gives each item's slot; empty or ``BY_TURN``: the session's query plan chooses, else
    the plan's shares. An item whose task has no open slot is dropped and sent to egress with the
    reason.
    """
    packed: list[_Parcel] = []
    newest: dict[tuple[int, int, str, int, int], _Parcel] = {}
    for at, (work, task, item) in enumerate(onward):
        slot = chosen[at] if chosen else BY_TURN
        if task and slot < 0:
            spread = spreads.get(task)
            if work.session is not None:
                slot = work.session.stage(task).slot
            elif spread:
                slot = spread.pick()
            else:
                task, item = "", _unserved(task, item)
        origin = work.origin
        if not task:
            slot = origin.partition % egress_partitions
        added = record_size(item.value)
        # Numbers instead of the origin: they hash much faster.
        way = (origin.partition, origin.offset, task, slot, work.size)
        parcel = newest.get(way)
        # A new parcel if the item would exceed the record's size.
        if parcel is None or (parcel.bytes and parcel.bytes + added > MOST_BYTES):
            parcel = newest[way] = _Parcel(work, task, slot)
            packed.append(parcel)
        parcel.items.append(item)
        parcel.bytes += added
    return [parcel.send(epoch) for parcel in packed]


class _Parcel:
    """Items of one query for one slot."""

    __slots__ = ("bytes", "items", "slot", "task", "work")

    def __init__(self, work: Work, task: str, slot: int) -> None:
        self.work = work
        self.task = task
        self.slot = slot
        self.items: list[Item] = []
        self.bytes = 0

    def send(self, epoch: int) -> Send:
        work, task = self.work, self.task
        parcel = Work(
            query_id=work.query_id,
            origin=work.origin,
            task=task,
            created_s=work.created_s,
            deadline_s=work.deadline_s,
            epoch=epoch,
            attempt=work.attempt,
            items=tuple(self.items),
            slo_class=work.slo_class,
            size=work.size,
            session=work.session,
        )
        return Send(work_topic(task) if task else OUTPUTS, parcel, self.slot)


def _unserved(task: str, item: Item) -> Item:
    end = dropped(task, no_worker(task))
    return Item(branch=item.branch, credit=item.credit, path=item.path, end=end)
