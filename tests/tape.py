"""Flight recorder: every node's events and effects, for replay.

A tape has one JSON object per line: node, time, event, effects. Records have their wire encoding
(schemas/codec/single_object.py), so later releases can read a tape as they can read records.
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
    Deliver,
    Done,
    Effect,
    Event,
    Failed,
    Forget,
    Heartbeat,
    Heartbeats,
    Infer,
    Inferred,
    Load,
    Loaded,
    Node,
    Reject,
    Scale,
    Send,
    Solve,
    Solved,
    Unload,
    Wake,
    Woke,
)
from schemas.records import (
    Answer,
    Command,
    CommandResult,
    Completion,
    DeadLetter,
    Garbled,
    Label,
    MeasuredAccuracy,
    Notice,
    Plan,
    ProfileRequest,
    ProfileResult,
    Query,
    Report,
    Selection,
    Session,
    Work,
)

STORY = 5  # the node's last events in a mismatch's message

# Written field by field; records go through the codec instead.
_SPELLED: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Arrived, Assign, Count, Counted, Deliver, Done, Failed, Forget, Garbled, Heartbeat,
        Heartbeats, Infer, Inferred, Load, Loaded, Reject, Scale, Send, Solve, Solved,
        Unload, Wake, Woke,
    )
}  # fmt: skip
_RECORDS = (
    Answer, Command, CommandResult, Completion, DeadLetter, Label, MeasuredAccuracy, Notice, Plan,
    ProfileRequest, ProfileResult, Query, Report, Selection, Session, Work,
)  # fmt: skip


class TapeError(ValueError):
    """A tape cannot be written or read; the message gives the position."""


class Mismatch(AssertionError):
    """A node's effects differ from the tape; the message lists the node's previous events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taped:
    """One event at one node, and its effects."""

    node: str
    now: float
    event: Event
    effects: tuple[Effect, ...]


class Tape:
    """An observer that records every event with its effects, in order."""

    def __init__(self, entries: Sequence[Taped] = ()) -> None:
        self.entries = list(entries)

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self.entries.append(Taped(node=node, now=now, event=event, effects=tuple(effects)))

    def save(self, path: Path) -> None:
        """Write the tape to a file; raise ``TapeError`` for a value without a form on a tape."""
        with path.open("w", encoding="utf-8") as file:
            for number, entry in enumerate(self.entries, 1):
                try:
                    file.write(_line(entry) + "\n")
                except (TypeError, CodecError) as error:
                    raise TapeError(f"{path}: entry {number} cannot be kept: {error}") from error

    @classmethod
    def load(cls, path: Path) -> "Tape":
        """Return the tape in a file; raise ``TapeError`` that names the broken line."""
        entries = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entries.append(_entry(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                raise TapeError(f"{path}:{number} is not a line of a tape: {error!r}") from error
        return cls(entries)


def replay(tape: Tape, nodes: Mapping[str, Node]) -> None:
    """Send the tape's events to fresh nodes, built with the arguments of the recorded ones.

    Raise ``Mismatch`` at the first event whose effects differ from the tape.
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
        f"entry {number}: at {entry.now:.6f} s {entry.node} received {entry.event!r}",
        f"  effect {at} on the tape: {wanted!r}",
        f"  effect {at} of this node: {got!r}",
        f"before it, {entry.node} received:",
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
    # Compared as text: arrays have no truth value and NaN is unequal to itself.
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    """Return a value as JSON: numbers and text unchanged, all else as {"~kind": content}."""
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
