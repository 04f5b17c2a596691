"""A flight recorder: what every node was told and what it asked for, to be replayed.

A tape is one JSON object a line: node, time, event, effects. Records stand in it as they do on
the wire (schemas/codec/single_object.py), so a tape outlives the release that recorded it as
records do.
"""

import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from schemas.codec.single_object import CodecError, decode, encode
from schemas.effects import (
    Arrived,
    Assign,
    Count,
    Counted,
    Done,
    Effect,
    Event,
    Failed,
    Forget,
    Infer,
    Inferred,
    Load,
    Loaded,
    Node,
    Reject,
    Send,
    Solve,
    Solved,
    Wake,
    Woke,
)
from schemas.records import (
    Answer,
    Command,
    CommandResult,
    DeadLetter,
    Garbled,
    Notice,
    Plan,
    Query,
    Report,
    Selection,
    Work,
)

STORY = 5  # how many of the node's last events a mismatch tells

# Spelled out field by field; records go through the codec instead.
_SPELLED: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Arrived, Assign, Count, Counted, Done, Failed, Forget, Garbled, Infer, Inferred, Load,
        Loaded, Reject, Send, Solve, Solved, Wake, Woke,
    )
}  # fmt: skip
_RECORDS = (
    Answer, Command, CommandResult, DeadLetter, Notice, Plan, Query, Report, Selection, Work,
)  # fmt: skip


class TapeError(ValueError):
    """A tape that cannot be written or read; the message says where."""


class Mismatch(AssertionError):
    """A node did not do what the tape says; the message tells the story up to there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taped:
    """One event at one node, and what it asked for."""

    node: str
    now: float
    event: Event
    effects: tuple[Effect, ...]


class Tape:
    """An observer that keeps everything it saw, in order."""

    def __init__(self, entries: Sequence[Taped] = ()) -> None:
        self.entries = list(entries)

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self.entries.append(Taped(node=node, now=now, event=event, effects=tuple(effects)))

    def save(self, path: Path) -> None:
        """Write the tape to a file. Raises ``TapeError`` for a value that no tape can hold."""
        with path.open("w", encoding="utf-8") as file:
            for number, entry in enumerate(self.entries, 1):
                try:
                    file.write(_line(entry) + "\n")
                except (TypeError, CodecError) as error:
                    raise TapeError(f"{path}: entry {number} cannot be kept: {error}") from error

    @classmethod
    def load(cls, path: Path) -> "Tape":
        """The tape in a file. Raises ``TapeError`` naming the line that is broken."""
        entries = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entries.append(_entry(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                raise TapeError(f"{path}:{number} is not a line of a tape: {error!r}") from error
        return cls(entries)


def replay(tape: Tape, nodes: Mapping[str, Node]) -> None:
    """Tell fresh nodes what the tape's nodes were told.

    Raises ``Mismatch`` at the first event after which a node asks for something else. Nodes must
    be made with the arguments that the recorded ones had.
    """
    past: dict[str, deque[Taped]] = {name: deque(maxlen=STORY) for name in nodes}
    for number, entry in enumerate(tape.entries, 1):
        if entry.node not in nodes:
            raise Mismatch(f"entry {number} is of node {entry.node!r}, which was not given")
        found = tuple(nodes[entry.node].handle(entry.event, entry.now))
        if _json(found) != _json(entry.effects):
            raise Mismatch(_story(number, entry, found, past[entry.node]))
        past[entry.node].append(entry)


def _story(number: int, entry: Taped, found: tuple[Effect, ...], past: deque[Taped]) -> str:
    pairs = enumerate(zip_longest(entry.effects, found), 1)
    at, (wanted, got) = next((i, p) for i, p in pairs if _json(p[0]) != _json(p[1]))
    lines = [f"  {each.now:.6f} {each.event!r} -> {len(each.effects)} effects" for each in past]
    return "\n".join([
        f"entry {number}: at {entry.now:.6f} s {entry.node} was told {entry.event!r}",
        f"  effect {at} on the tape: {wanted!r}",
        f"  effect {at} of this node: {got!r}",
        f"before it, {entry.node} was told:",
        *(lines or ["  nothing"]),
    ])  # fmt: skip


# ---------------------------------------------------------------------- a line of a tape


def _line(entry: Taped) -> str:
    return json.dumps(
        {
            "node": entry.node,
            "now": entry.now,
            "event": _plain(entry.event),
            "effects": [_plain(effect) for effect in entry.effects],
        }
    )


def _entry(line: dict[str, Any]) -> Taped:
    effects = tuple(_restored(effect) for effect in line["effects"])
    return Taped(
        node=line["node"], now=line["now"], event=_restored(line["event"]), effects=effects
    )


def _json(value: Any) -> str:
    # As text, because arrays have no truth value and NaN is not itself.
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    """A value in JSON: numbers and text as they are, all else as {"~kind": content}."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, _RECORDS):
        return {"~record": _text(encode(value))}
    name = type(value).__name__
    if _SPELLED.get(name) is type(value):
        return {"~" + name: {f: _plain(getattr(value, f)) for f in value.__struct_fields__}}
    if isinstance(value, bytes):
        return {"~bytes": _text(value)}
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, np.ndarray):
        shape = list(value.shape)
        return {"~array": [value.dtype.str, shape, _text(np.ascontiguousarray(value).tobytes())]}
    if isinstance(value, Exception):
        return {"~error": str(value) or name}
    return _plain_container(value)


def _plain_container(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, tuple):
        return {"~tuple": [_plain(each) for each in value]}
    if isinstance(value, Mapping):
        return {"~map": [[_plain(k), _plain(v)] for k, v in value.items()]}
    raise TypeError(f"{type(value).__name__} has no form on a tape")


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    kind = kind.removeprefix("~")
    if kind in _SPELLED:
        return _SPELLED[kind](**{name: _restored(each) for name, each in content.items()})
    return _RESTORED[kind](content)


def _restored_array(content: list[Any]) -> np.ndarray:
    dtype, shape, data = content
    return np.frombuffer(b64decode(data), np.dtype(dtype)).reshape(shape)


_RESTORED: dict[str, Callable[[Any], Any]] = {
    "record": lambda content: decode(b64decode(content)),
    "bytes": b64decode,
    "array": _restored_array,
    "error": Exception,
    "tuple": lambda content: tuple(_restored(each) for each in content),
    "map": lambda content: {_restored(k): _restored(v) for k, v in content},
}


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")
