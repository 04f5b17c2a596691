"""Read recorded profiles of every configuration, so that a search runs without devices.

    {"pipeline": NAME, "input_bytes": B, "result_bytes": B, "parallelism": 1, "provenance": {...},
     "configurations": [{"options": {"TASK.KNOB": OPTION, ...}, "scores": [...] or "543...",
                         "seconds": {TASK: S, ...}, "bytes": {TASK: B, ...},
                         "memory_bytes": {TASK: B, ...}}]}

``scores`` are per sample, in one order, from 0 to 1, or a string of digits divided by ``of``.
``seconds`` are per sample on the reference device. ``parallelism`` is the speed-up of profiling
over one sample after the other.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from control.problem.space import Space, leaves
from headrace.errors import PipelineError

Floats = NDArray[np.float64]

LEAST = 2  # scores of a configuration: fewer have no variance


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    options: dict[str, str]
    scores: list[float] | str
    seconds: dict[str, float]
    bytes: dict[str, float] = {}
    memory_bytes: dict[str, float] = {}


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    pipeline: str
    configurations: list[_Row]
    input_bytes: float = 0.0
    result_bytes: float = 0.0
    parallelism: float = 1.0
    of: int = 1
    provenance: dict[str, Any] = {}


class RecordedTruth(msgspec.Struct, frozen=True, kw_only=True):
    """Per configuration c of a space: ``scores[c]`` in sample order, ``seconds[c, stage]`` on the
    reference device, ``sent[c, hop]`` bytes, ``memory[c, stage]`` bytes of the models."""

    scores: tuple[Floats, ...]
    seconds: Floats
    sent: Floats
    memory: Floats
    parallelism: float


def read_truth(path: Path, space: Space) -> RecordedTruth:
    """Read a recording; raise ``PipelineError`` if it is invalid or lacks a configuration."""
    document = _decoded(path)
    rows: dict[int, _Row] = {}
    for row in document.configurations:
        at = space.index_of(row.options)
        if at is not None:
            rows[at] = row
    lacking = [c for c in range(space.configuration_count) if c not in rows]
    if lacking:
        raise PipelineError(
            f"{path} lacks {len(lacking)} of {space.configuration_count} configurations, among "
            f"them {space.named(lacking[0])}; record it anew for this pipeline file"
        )
    ordered = [rows[c] for c in range(space.configuration_count)]
    names = [stage.name for stage in space.stages]
    try:
        found = RecordedTruth(
            scores=tuple(_scores(row, document.of) for row in ordered),
            seconds=np.array([[row.seconds[name] for name in names] for row in ordered]),
            sent=np.stack([_sent(row, document, space) for row in ordered]),
            memory=np.array([[row.memory_bytes.get(n, 0.0) for n in names] for row in ordered]),
            parallelism=document.parallelism,
        )
    except KeyError as error:
        raise PipelineError(f"{path}: a configuration lacks {error}; record it anew") from error
    _check(path, found, ordered)
    return found


def _check(path: Path, found: RecordedTruth, rows: Sequence[_Row]) -> None:
    for options, scores in zip((row.options for row in rows), found.scores, strict=True):
        if len(scores) < LEAST or not ((scores >= 0) & (scores <= 1)).all():
            raise PipelineError(
                f"{path}: the configuration {options} has no {LEAST} scores or more from 0 to 1; "
                "record it anew"
            )
    for what in (found.seconds, found.sent, found.memory):
        if not (np.isfinite(what) & (what >= 0)).all():
            raise PipelineError(
                f"{path}: seconds or bytes of a configuration are not 0 or more; record it anew"
            )


def _decoded(path: Path) -> _Document:
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except OSError as error:
        raise PipelineError(f"the recording {path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"{path} is no recording of profiles: {error}") from error
    if not (document.parallelism > 0 and document.of > 0):
        raise PipelineError(f"{path}: parallelism and of must be above 0; record it anew")
    return document


def _scores(row: _Row, of: int) -> Floats:
    if isinstance(row.scores, str):
        # Anything else is no score, which ``_check`` reports.
        found = [float(each) if each.isdecimal() else np.nan for each in row.scores]
        digits: Floats = np.array(found) / of
        return digits
    return np.array(row.scores, dtype=np.float64)


def _sent(row: _Row, document: _Document, space: Space) -> Floats:
    """Return the bytes sent into every stage, then back from every leaf."""
    into = [
        row.bytes.get(stage.parent, 0.0) if stage.parent else document.input_bytes
        for stage in space.stages
    ]
    return np.array([*into, *(document.result_bytes for _ in leaves(space.stages))])
