"""The parts of a recording that a simulation of sessions uses: seconds, outputs and profiles.

A setting takes the recorded seconds of its stage, divided by the tier's speed: the mean over the
configurations that have the setting, since the recording is by configuration and workers run
settings. Outputs are bytes of the recorded size.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from control.problem.session_space import SessionSpace
from headrace.planning.recorded_truth import RecordedTruth
from schemas.effects import (
    PROFILE_REQUESTS,
    PROFILE_RESULTS,
    Arrived,
    Assign,
    Effect,
    Event,
    Send,
    Wake,
)
from schemas.pipeline import Pipeline
from schemas.records import ProfileRequest, ProfileResult
from schemas.variant_id import variant_id

LOAD_S = 0.2  # of a setting
REQUEST_SLOTS = 8


class RecordedSetting:
    """A setting on a tier (``streams.simulated.simulated_driver.BatchLatency``)."""

    load_s = LOAD_S

    def __init__(self, seconds: float, children: Sequence[str], size: int) -> None:
        self._seconds = seconds
        self._output: Any = {child: [b"\0" * size] for child in children} or b"\0" * size

    def latency_s(self, batch: int) -> float:
        """Return the seconds of a batch: items run one after another."""
        return batch * self._seconds

    def predict(self, values: Sequence[Any]) -> list[Any]:
        """Return one output per value."""
        return [self._output for _ in values]


class Recording:
    """A recording by setting; ``index`` finds the configuration of settings."""

    def __init__(self, pipeline: Pipeline, space: SessionSpace, truth: RecordedTruth) -> None:
        self._pipeline, self._space, self.truth = pipeline, space, truth
        self._rows: dict[str, list[int]] = {}
        self._index: dict[tuple[str, ...], int] = {}
        tasks = [stage.name for stage in space.space.stages]
        for c in range(space.space.configuration_count):
            settings = tuple(space.setting(task, c) for task in tasks)
            self._index[settings] = c
            for setting in settings:
                self._rows.setdefault(setting, []).append(c)
        self._tasks = tasks

    def setting(self, key: str, tier: str) -> RecordedSetting:
        """Return a setting on a tier; one that is not recorded, such as a variant without knobs,
        never runs."""
        task = variant_id(key).task
        stage = self._tasks.index(task)
        rows = self._rows.get(key, [0])
        seconds = float(self.truth.seconds[rows, stage].mean()) / self._space.tiers[tier].speed
        children = self._pipeline.task(task).children
        return RecordedSetting(seconds, children, self._bytes(stage, rows))

    def _bytes(self, stage: int, rows: Sequence[int]) -> int:
        name = self._tasks[stage]
        into = [s for s, each in enumerate(self._space.space.stages) if each.parent == name]
        return int(self.truth.sent[rows, into[0]].mean()) if into else 8

    def index(self, settings: Sequence[str]) -> int:
        """Return the configuration of settings, in the order of the tasks."""
        return self._index[tuple(settings)]


class RecordedProfilers:
    """``count`` profilers that answer from a recording, as one node with a queue.

    Outputs are cached by the options of all stages up to them, as profilers do, and a block that
    was run is not run again.
    """

    def __init__(self, space: SessionSpace, recording: Recording, count: int) -> None:
        self._space, self._truth = space.space, recording.truth
        self._free_s = [0.0] * count
        self._cached: set[tuple[str, int, int, int]] = set()  # samples, first, stage, prefix
        self._due: list[tuple[float, ProfileResult]] = []
        self._began = False
        self.spent_s = 0.0

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take requests, and send the results that are due."""
        if isinstance(event, Arrived) and isinstance(event.record, ProfileRequest):
            return self._taken(event.record, now)
        effects: list[Effect] = []
        if not self._began:
            self._began = True
            effects = [Assign(PROFILE_REQUESTS, tuple(range(REQUEST_SLOTS)))]
        due = [result for at_s, result in self._due if at_s <= now]
        self._due = [(at_s, result) for at_s, result in self._due if at_s > now]
        sends = [Send(PROFILE_RESULTS, each, 0, f"{each.options}/{each.first}") for each in due]
        return [*effects, *sends]

    def _taken(self, request: ProfileRequest, now: float) -> list[Effect]:
        c = self._space.index_of(request.options)
        assert c is not None
        spent_s = self._cost(request, c)
        self.spent_s += spent_s
        profiler = int(np.argmin(self._free_s))
        ends_s = max(self._free_s[profiler], now) + spent_s
        self._free_s[profiler] = ends_s
        self._due.append((ends_s, self._result(request, c, spent_s, ends_s)))
        return [Wake(ends_s)]

    def _cost(self, request: ProfileRequest, c: int) -> float:
        spent_s = 0.0
        for stage in range(len(self._space.stages)):
            prefix = int(self._space.prefixes[c, stage])
            key = request.sample_set, request.first, stage, prefix
            if key not in self._cached:
                self._cached.add(key)
                spent_s += (request.upto - request.first) * float(self._truth.seconds[c, stage])
        return spent_s

    def _result(
        self, request: ProfileRequest, c: int, spent_s: float, ends_s: float
    ) -> ProfileResult:
        scores = self._truth.scores[c][request.first : request.upto]
        count, stages = len(scores), self._space.stages
        sent = self._truth.sent[c]
        parents = {stage.parent: at for at, stage in enumerate(stages) if stage.parent}
        return ProfileResult(
            pipeline=request.pipeline, space=request.space, options=request.options,
            sample_set=request.sample_set, first=request.first, scores=tuple(scores.tolist()),
            seconds={s.name: count * float(self._truth.seconds[c, at])
                     for at, s in enumerate(stages)},
            bytes={s.name: count * float(sent[parents[s.name]]) if s.name in parents else 0.0
                   for s in stages},
            cached={}, input_bytes=count * float(sent[0]), spent_s=spent_s, device="recorded",
            profiler="profiler", finished_s=ends_s, search=request.search,
        )  # fmt: skip
