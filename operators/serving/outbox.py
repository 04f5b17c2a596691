"""Packing: one Work per query, task, slot and size for all of its items there.

A frame with twenty cars costs one message per slot, not twenty.
"""

from collections.abc import Iterable, Mapping, Sequence

from control.per_query.routing import WeightedRoundRobin
from control.per_query.shadowing import is_shadow
from control.per_query.waiting_slots import waiting_slot
from operators.drop_reasons import dropped, no_worker
from operators.record_size import MOST_BYTES, record_size
from schemas.effects import OUTPUTS, SHADOWS, Effect, Send, waiting_topic, work_topic
from schemas.records import Item, Work

# (the work an item came with, the task it goes to or "" for egress, the item)
Onward = tuple[Work, str, Item]

# The work that items came with, their task and slot, and the items.
_Parcel = tuple[Work, str, int, list[Item]]

NO_DISPATCHERS: Mapping[str, int] = {}
BY_TURN = -2  # in place of a slot: the next slot by the plan's shares


def packed(
    onward: Iterable[Onward],
    spreads: Mapping[str, WeightedRoundRobin],
    epoch: int,
    egress_partitions: int,
    chosen: Sequence[int] = (),
    dispatchers: Mapping[str, int] = NO_DISPATCHERS,
) -> list[Effect]:
    """Return the sends of ``onward``, in the order of the first item for each slot.

    ``chosen`` gives each item's slot. If it is empty or ``BY_TURN``, the session's query plan
    chooses, else the plan's shares. An item of a task in ``dispatchers`` waits at one of that many
    dispatchers, unless its session's query plan chooses. An item whose task has no open slot is
    dropped and sent to egress with the reason.
    """
    # Integers instead of the query's origin: they hash much faster.
    parcels: dict[tuple[int, int, str, int, int], _Parcel] = {}
    for at, (work, task, item) in enumerate(onward):
        slot = chosen[at] if chosen else BY_TURN
        if task and slot < 0:
            spread = spreads.get(task)
            if work.session is not None:
                slot = work.session.stage(task).slot
            elif spread is not None and task in dispatchers:
                slot = waiting_slot(work.origin, dispatchers[task])
            elif spread is not None:
                slot = spread.pick()
            else:
                task, item = "", _unserved(task, item)
        origin = work.origin
        if not task:
            shadow = work.session is not None and is_shadow(work)
            slot = 0 if shadow else origin.partition % egress_partitions
        way = (origin.partition, origin.offset, task, slot, work.size)
        parcel = parcels.get(way)
        if parcel is None:
            parcels[way] = (work, task, slot, [item])
        else:
            parcel[3].append(item)
    return _sends(parcels.values(), epoch, dispatchers)


def _sends(parcels: Iterable[_Parcel], epoch: int, dispatchers: Mapping[str, int]) -> list[Effect]:
    sends: list[Effect] = []
    for work, task, slot, items in parcels:
        topic = _topic(work, task, dispatchers)
        for part in _records(items) if len(items) > 1 else (items,):
            parcel = Work(
                query_id=work.query_id, origin=work.origin, task=task, created_s=work.created_s,
                deadline_s=work.deadline_s, epoch=epoch, attempt=work.attempt, items=tuple(part),
                slo_class=work.slo_class, size=work.size, session=work.session, trace=work.trace,
            )  # fmt: skip
            sends.append(Send(topic, parcel, slot))
    return sends


def _records(items: list[Item]) -> list[list[Item]]:
    """Return the items in groups that each fit a record."""
    groups: list[list[Item]] = []
    room = 0
    for item in items:
        size = record_size(item.value)
        if size > room or not groups:
            groups.append([])
            room = MOST_BYTES
        groups[-1].append(item)
        room -= size
    return groups


def _topic(work: Work, task: str, dispatchers: Mapping[str, int]) -> str:
    if not task:
        return SHADOWS if work.session is not None and is_shadow(work) else OUTPUTS
    if task in dispatchers and work.session is None:
        return waiting_topic(task)
    return work_topic(task)


def _unserved(task: str, item: Item) -> Item:
    end = dropped(task, no_worker(task))
    return Item(branch=item.branch, credit=item.credit, path=item.path, end=end)
