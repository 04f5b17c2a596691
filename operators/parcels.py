"""Packing: one Work per query, task and slot, however many items it has there.

A frame with twenty cars must not cost twenty messages.
"""

from collections.abc import Iterable, Mapping

from control.routing import Spread
from operators.weight import MOST_BYTES, weight
from schemas.effects import OUTPUTS, Effect, Send, work_topic
from schemas.records import DROPPED, End, Item, Origin, Work

# (the work an item came with, the task it goes to or "" for egress, the item)
Onward = tuple[Work, str, Item]


def parcels(
    onward: Iterable[Onward], spreads: Mapping[str, Spread], epoch: int, egress_partitions: int
) -> list[Effect]:
    """Sends for items on their way, in the order in which each parcel's first item came.

    An item whose task has no open slot is dropped: it goes to egress with the reason.
    """
    packed: dict[tuple[Origin, str, int, int], tuple[Work, list[Item]]] = {}
    newest: dict[tuple[Origin, str, int], tuple[int, int]] = {}  # newest parcel, its bytes
    for work, task, item in onward:
        if task and not spreads.get(task):
            task, item = "", _unserved(task, item)
        slot = spreads[task].pick() if task else work.origin.partition % egress_partitions
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
