"""Packing: one Work per query, task and slot, however many items it has there.

A frame with twenty cars must not cost twenty messages.
"""

from collections.abc import Iterable, Mapping, Sequence

from control.routing import Spread
from operators.weight import MOST_BYTES, weight
from schemas.effects import OUTPUTS, Effect, Send, work_topic
from schemas.records import DROPPED, End, Item, Origin, Work

# (the work an item came with, the task it goes to or "" for egress, the item)
Onward = tuple[Work, str, Item]

BY_TURN = -2  # in place of a slot: whose turn it is by the plan's shares


def parcels(
    onward: Iterable[Onward],
    spreads: Mapping[str, Spread],
    epoch: int,
    egress_partitions: int,
    chosen: Sequence[int] = (),
) -> list[Effect]:
    """Sends for items on their way, in the order in which each parcel's first item came.

    ``chosen`` names the slot of each, where that is not all the plan's shares' business. An item
    whose task has no open slot is dropped: it goes to egress with the reason.
    """
    packed: dict[tuple[Origin, str, int, int], tuple[Work, list[Item]]] = {}
    newest: dict[tuple[Origin, str, int], tuple[int, int]] = {}  # newest parcel, its bytes
    for at, (work, task, item) in enumerate(onward):
        slot = chosen[at] if chosen else BY_TURN
        if task and slot < 0:
            if spreads.get(task):
                slot = spreads[task].pick()
            else:
                task, item = "", _unserved(task, item)
        if not task:
            slot = work.origin.partition % egress_partitions
        way, added = (work.origin, task, slot), weight(item.value)
        number, filled = newest.get(way, (0, 0))
        if filled and filled + added > MOST_BYTES:  # together they exceed a record
            number, filled = number + 1, 0
        newest[way] = (number, filled + added)
        key = (*way, number)
        parcel = packed.get(key)
        if parcel is None:
            packed[key] = (work, [item])
        else:
            parcel[1].append(item)
    return [
        Send(
            work_topic(task) if task else OUTPUTS,
            Work(
                query_id=work.query_id,
                origin=origin,
                task=task,
                created_s=work.created_s,
                deadline_s=work.deadline_s,
                epoch=epoch,
                attempt=work.attempt,
                items=tuple(items),
            ),
            slot,
        )
        for (origin, task, slot, _), (work, items) in packed.items()
    ]


def _unserved(task: str, item: Item) -> Item:
    end = End(DROPPED, task, f"no worker serves task {task!r}")
    return Item(branch=item.branch, credit=item.credit, path=item.path, end=end)
