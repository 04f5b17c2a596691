"""Fan-out: turn an operator's output into the answer at a leaf, else into the children's items.

Every item holds a whole number of credits; children share their parent's without remainder, so a
query is complete when egress has received ``FULL_CREDIT`` of it, whatever the fan-out was.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from operators.calls.user_frames import error_sentence, with_frames
from operators.drop_reasons import Reason, dropped
from operators.record_size import MOST_BYTES, brief, excess
from operators.serving.sized import Sized
from operators.timed_batch import OutOfTime
from schemas.codec.values import MAX_DEPTH, pack
from schemas.enumerations import ReasonCode
from schemas.pipeline import Task
from schemas.records import ANSWERED, FAILED, End, Hop, Item, Value

_ALWAYS_FIT = frozenset((type(None), bool, float))
_LISTS = (list, tuple, np.ndarray)


class OutputError(ValueError):
    """An operator's output cannot be passed on."""


def outcome(task: Task, item: Item, path: tuple[Hop, ...], output: Any) -> list[tuple[str, Item]]:
    """Return the (task, item) pairs of an item's output; task "" is egress.

    An exception or an output that cannot be passed on fails only its own item; ``OutOfTime`` drops
    it.
    """
    if isinstance(output, OutOfTime):
        end = dropped(task.name, Reason(ReasonCode.PAST_SAVING, brief(str(output))))
        return [("", Item(branch=item.branch, credit=item.credit, path=path, end=end))]
    if isinstance(output, Exception):
        return [("", failed_item(task.name, item, path, reason_of(output)))]
    try:
        if not task.children:
            return [("", _answer(task, item, path, output))]
        return _children(task, item, path, output)
    except ValueError as error:
        return [("", failed_item(task.name, item, path, str(error)))]
    except Exception as error:  # noqa: BLE001 - a user's type may raise anything when it is read
        reason = f"the output cannot be read: {error_sentence(error)}"
        return [("", failed_item(task.name, item, path, with_frames(reason, error)))]


def failed_item(task: str, item: Item, path: tuple[Hop, ...], reason: str) -> Item:
    """Return the failed item for egress."""
    # An error message may not be valid UTF-8; ``brief`` makes it sendable.
    end = End(FAILED, task, brief(reason), ReasonCode.OPERATOR)
    return Item(branch=item.branch, credit=item.credit, path=path, end=end)


def reason_of(error: Exception) -> str:
    """Return why an item failed whose operator returned this exception in place of an output.

    One that was never raised is worded for callers; of another its type and frames are named too.
    """
    if error.__traceback__ is not None:
        return with_frames(error_sentence(error), error)
    try:
        return str(error) or error_sentence(error)
    except Exception:  # noqa: BLE001 - a user's class; ``sentence`` says so
        return error_sentence(error)


def _answer(task: Task, item: Item, path: tuple[Hop, ...], output: Any) -> Item:
    return Item(
        branch=item.branch, credit=item.credit, value=as_value(output), path=path,
        end=_answered(task.name),
    )  # fmt: skip


@cache
def _answered(task: str) -> End:
    # Cached: one End per task serves every item.
    return End(ANSWERED, task)


def _children(task: Task, item: Item, path: tuple[Hop, ...], output: Any) -> list[tuple[str, Item]]:
    listed = _by_child(task, output)
    count = sum(map(len, listed.values()))
    if count == 0:
        # No children's items: the credit closes here, with an empty result.
        end = _answered(task.name)
        return [("", Item(branch=item.branch, credit=item.credit, path=path, end=end))]
    credits = split_credit(item.credit, count)
    made: list[tuple[str, Item]] = []
    for index, child in enumerate(task.children):
        for ordinal, value in enumerate(listed.get(child, ())):
            branch, credit = (*item.branch, index, ordinal), credits[len(made)]
            made.append(
                (child, Item(branch=branch, credit=credit, value=as_value(value), path=path))
            )
    return made


def sizes_of(task: Task, output: Any) -> list[int]:
    """Return the sizes that an output gives the children's items, in the order of ``outcome``.

    0 stands for an item without a size.
    """
    listed = _by_child(task, output)
    return [
        value.size if type(value) is Sized else 0
        for child in task.children
        for value in listed.get(child, ())
    ]


def _by_child(task: Task, output: Any) -> Mapping[str, Sequence[Any]]:
    if type(output) is list and len(task.children) == 1:
        return {task.children[0]: output}
    # Lists first: the check of an abstract class is slow.
    if not isinstance(output, _LISTS) and isinstance(output, Mapping):
        unknown = [name for name in output if name not in task.children]
        if unknown:
            raise OutputError(
                f"the operator of task {task.name!r} gave items for {unknown[0]!r}; "
                f"its children are {', '.join(task.children)}"
            )
        listed = output
    elif len(task.children) == 1:
        listed = {task.children[0]: output}
    else:
        raise OutputError(
            f"task {task.name!r} has {len(task.children)} children, so its operator returns a "
            f"mapping from child to items for each input, not {type(output).__name__}"
        )
    for child, values in listed.items():
        listable = isinstance(values, _LISTS)
        if not listable or getattr(values, "ndim", 1) == 0:
            raise OutputError(
                f"the operator of task {task.name!r} gave {type(values).__name__} for child "
                f"{child!r}; return a list of items for each input"
            )
    return listed


def without_tuples(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a value with every tuple in it, at any level of lists and dicts, as a list.

    Raises ``OutputError`` above ``depth`` levels: a list may contain itself.
    """
    if not isinstance(value, (list, tuple, dict)):
        return value
    if depth == 0:
        raise OutputError(f"a value is nested more than {MAX_DEPTH} levels deep; flatten it")
    if isinstance(value, dict):
        return {key: without_tuples(each, depth - 1) for key, each in value.items()}
    return [without_tuples(each, depth - 1) for each in value]


def as_value(value: Any) -> Value:
    """Return the value if it can be sent, tuples as lists, else raise ``ValueError``.

    A failure on sending would end the worker.
    """
    if type(value) is Sized:
        value = value.value
    if type(value) in _ALWAYS_FIT or (type(value) is bytes and len(value) <= MOST_BYTES):
        return value  # type: ignore[no-any-return]
    try:
        pack(value)
    except ValueError:
        value = without_tuples(value)
        pack(value)
    too_large = excess(value)
    if too_large:
        raise OutputError(too_large)
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain


def split_credit(credit: int, children: int) -> list[int]:
    """Return shares of ``credit`` for ``children`` (> 0) that sum to it; the first get the rest.

    Raises ``ValueError`` when there are more children than credits.
    """
    share, rest = divmod(credit, children)
    if share == 0:
        raise ValueError(f"{children} children cannot share {credit} credits; fan out less")
    return [share + 1] * rest + [share] * (children - rest)
