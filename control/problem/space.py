"""The search space of query plans: configurations of knobs times placements on tiers.

Both are values, never expanded into variants: configuration ``c`` is a row of option indices,
placement ``p`` a row of tier indices, plan ``c * placements + p``. A stage may exclude tiers
(Compass, Section 2.1: data governance, local processing); the space holds allowed tiers only.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.problem.problem import PlanError

Ints = NDArray[np.int64]

MOST_PLANS = 1_000_000


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting of a stage, one of ``options`` by name."""

    stage: str
    name: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """An operator of the pipeline. ``parent`` feeds it ("": the session's input); ``tiers`` may
    run it. ``cpu`` stages need no GPU; the share of a ``batched`` stage is a seat in a batch."""

    name: str
    parent: str
    tiers: tuple[str, ...]
    cpu: bool = False
    batched: bool = False


@dataclass(frozen=True)
class Space:
    """Stages in topological order, their knobs in the same order, and all tiers; ``truth`` is the
    reference of the scores, "" for the workload's truths. ``operators`` describes what the stages
    run, "" if that is not known."""

    stages: tuple[Stage, ...]
    knobs: tuple[Knob, ...]
    tiers: tuple[str, ...]
    truth: str = ""
    operators: str = ""

    def __post_init__(self) -> None:
        """Raise ``PlanError`` for an empty space, or one too large to search."""
        for stage in self.stages:
            if not stage.tiers:
                raise PlanError(
                    f"no tier may run {stage.name!r}; name one at least under its tiers"
                )
        for knob in self.knobs:
            if not knob.options:
                raise PlanError(f"knob {knob.stage}.{knob.name} has no option; give it one")
        if self.plans > MOST_PLANS:
            largest = max(self.knobs, key=lambda knob: len(knob.options))
            raise PlanError(
                f"the space has {self.plans:,} query plans, more than {MOST_PLANS:,}; shorten "
                f"{largest.stage}.{largest.name} with its {len(largest.options)} options, or pin "
                "tasks to tiers"
            )

    def __getstate__(self) -> dict[str, object]:
        """Return the fields, without derived values, which are not sent to other processes."""
        kept = ("stages", "knobs", "tiers", "truth", "operators")
        return {name: getattr(self, name) for name in kept}

    @property
    def configuration_count(self) -> int:
        """The number of configurations."""
        return int(np.prod([len(knob.options) for knob in self.knobs], dtype=object))

    @property
    def placement_count(self) -> int:
        """The number of placements."""
        return int(np.prod([len(stage.tiers) for stage in self.stages], dtype=object))

    @property
    def plans(self) -> int:
        """The number of query plans."""
        return self.configuration_count * self.placement_count

    @cached_property
    def configurations(self) -> Ints:
        """Option indices, one row per configuration; the last knob varies fastest."""
        options = [range(len(knob.options)) for knob in self.knobs]
        rows = np.array(list(product(*options)), dtype=np.int64)
        return rows.reshape(self.configuration_count, len(self.knobs))

    @cached_property
    def placements(self) -> Ints:
        """Tier indices, one row per placement, one column per stage."""
        at = {tier: index for index, tier in enumerate(self.tiers)}
        allowed = [[at[tier] for tier in stage.tiers] for stage in self.stages]
        return np.array(list(product(*allowed)), dtype=np.int64)

    @cached_property
    def upstream(self) -> tuple[tuple[int, ...], ...]:
        """Per stage, the knobs of the stage and of all its ancestors."""
        parents = {stage.name: stage.parent for stage in self.stages}
        return tuple(self._knobs_of(_ancestors(stage.name, parents)) for stage in self.stages)

    @cached_property
    def own(self) -> tuple[tuple[int, ...], ...]:
        """Per stage, its own knobs."""
        return tuple(self._knobs_of({stage.name}) for stage in self.stages)

    @cached_property
    def prefixes(self) -> Ints:
        """Per configuration and stage, a number that is equal for equal options up to the stage."""
        columns = [
            np.unique(self.configurations[:, list(knobs)], axis=0, return_inverse=True)[1].ravel()
            if knobs
            else np.zeros(self.configuration_count, dtype=np.int64)
            for knobs in self.upstream
        ]
        return np.stack(columns, axis=1).astype(np.int64)

    @cached_property
    def digest(self) -> str:
        """A hash of stages, knobs, options and operators, plus one of the truth if it is not the
        workload's; equal for equal spaces. Tiers are not part of it."""
        described: list[Any] = [
            [[s.name, s.parent] for s in self.stages],
            [[k.stage, k.name, k.options] for k in self.knobs],
            *([self.operators] if self.operators else []),
        ]
        shape = _hash(json.dumps(described))[:16]
        return f"{shape}-{_hash(self.truth)[:8]}" if self.truth else shape

    def _knobs_of(self, stages: set[str]) -> tuple[int, ...]:
        return tuple(index for index, knob in enumerate(self.knobs) if knob.stage in stages)

    def named(self, configuration: int) -> dict[str, str]:
        """Return the option of every knob of a configuration, by "stage.knob"."""
        row = self.configurations[configuration]
        return {
            f"{knob.stage}.{knob.name}": knob.options[option]
            for knob, option in zip(self.knobs, row.tolist(), strict=True)
        }

    def placed(self, placement: int) -> dict[str, str]:
        """Return the tier of every stage of a placement."""
        row = self.placements[placement]
        return {s.name: self.tiers[t] for s, t in zip(self.stages, row.tolist(), strict=True)}

    def index_of(self, options: Mapping[str, str]) -> int | None:
        """Return the configuration of these options by "stage.knob"; None if one is missing.

        Options of knobs that the space lacks are ignored: history may come from a larger space.
        """
        at = 0
        for knob in self.knobs:
            option = options.get(f"{knob.stage}.{knob.name}")
            if option is None or option not in knob.options:
                return None
            at = at * len(knob.options) + knob.options.index(option)
        return at


def same_truth(digest: str, other: str) -> bool:
    """Return whether the scores of two spaces, given by their digests, have the same truth."""
    return digest.partition("-")[2] == other.partition("-")[2]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _ancestors(stage: str, parents: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    while stage:
        found.add(stage)
        stage = parents[stage]
    return found


def leaves(stages: Sequence[Stage]) -> tuple[int, ...]:
    """Return the indices of the stages that feed no other."""
    parents = {stage.parent for stage in stages}
    return tuple(index for index, stage in enumerate(stages) if stage.name not in parents)
