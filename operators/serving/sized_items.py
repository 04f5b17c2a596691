"""Sizes of a child task's items, as the operator of the parent task gives them.

An item without a size of its own has that of the item it was made of.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from operators.serving.fanout import failed, sizes_of
from operators.serving.outbox import Onward
from schemas.pipeline import Task
from schemas.records import Item, Work


def sized_onward(
    work: Work, task: Task, made: Sequence[tuple[str, Item]], output: Any, most: int
) -> list[Onward]:
    """Return ``made``, the items of one output, each with work of its size.

    An item above the pipeline's largest size ``most`` fails, as no profile covers it.
    """
    sizes = sizes_of(task, output) if made[0][0] else []
    if not any(sizes):
        return [(work, to, item) for to, item in made]
    return [
        _sized(work, task, to, item, size, most)
        for (to, item), size in zip(made, sizes, strict=True)
    ]


def _sized(work: Work, task: Task, to: str, item: Item, size: int, most: int) -> Onward:
    if size <= most:
        return replace(work, size=size) if size else work, to, item
    reason = (
        f"the operator of task {task.name!r} gave an item of size {size} for {to!r}, above "
        f"size.most of {most}; split the item or raise size.most"
    )
    return work, "", failed(task.name, item, item.path, reason)
