"""Build one query's waterfall (where its time went, how it ended) from its Answer alone.

An answer holds the hops of every branch: when a worker received an item, when its batch started
and finished. Time between two hops is Kafka's; before the first hop it includes the producer and
ingress, after the last egress. More than ``SHOWN`` batches of one task and variant are folded into
the last to finish, with a summary of the others, so that twenty branches stay readable.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.results.tally import latency_ms
from operators.drop_reasons import counted_as
from schemas.codec.json_form import to_json
from schemas.codec.path_tree import compact
from schemas.enumerations import ReasonCode
from schemas.records import Answer, Hop
from schemas.variant_id import variant_key

SHOWN = 4  # batches of one task and variant that are shown individually

KAFKA, QUEUE, RUN = "kafka", "queue", "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallStep:
    """An interval of a query's time, in ms since its creation. ``slack_ms``: time to the deadline
    at its end."""

    kind: str  # KAFKA, QUEUE or RUN
    name: str
    from_ms: float
    to_ms: float
    slack_ms: float

    @property
    def took_ms(self) -> float:
        """The step's length, ms; negative if two machines' clocks differ."""
        return self.to_ms - self.from_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallStage:
    """A task's part: one batch, or several folded; ``steps`` are those of the last to finish."""

    task: str
    variant: str
    workers: tuple[str, ...]
    epochs: tuple[int, ...]  # of the plans that were followed
    batch: tuple[int, int]  # items in the smallest and in the largest batch
    released: tuple[tuple[str, int], ...]  # reasons to start a batch, with their counts
    batches: int
    branches: int  # of the query that passed here
    first_done_ms: float
    steps: tuple[WaterfallStep, ...]


@dataclass(frozen=True, slots=True)
class Fate:
    """The common end of some branches: outcome, task and reason."""

    outcome: str
    task: str
    reason: str  # of the first
    branches: int
    code: ReasonCode = ReasonCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A query's waterfall. ``notes`` describe anomalies: clock differences, rerouted items."""

    answer: Answer
    stages: tuple[WaterfallStage, ...]
    last: WaterfallStep  # from the last hop to the answer
    fates: tuple[Fate, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the waterfall with the whole answer; times in ms since the query's creation."""
        return {
            "answer": json.loads(to_json(compact(self.answer))),
            "latency_ms": round(latency_ms(self.answer), 3),
            "deadline_ms": round((self.answer.deadline_s - self.answer.created_s) * 1e3, 3),
            "stages": [_stage_row(stage) for stage in self.stages],
            "last": _step_row(self.last),
            "fates": [{"outcome": f.outcome, "task": f.task, "reason": f.reason,
                       "reason_code": f.code, "branches": f.branches} for f in self.fates],
            "notes": list(self.notes),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Visit:
    """A branch at a hop, and when the item left the previous task (or was created)."""

    hop: Hop
    left_s: float
    after: str  # the task before, "" for none


def explained(answer: Answer, shown: int = SHOWN) -> Explained:
    """Return a query's waterfall; more than ``shown`` batches of a task and variant are folded."""
    stages = tuple(
        stage for visits in _by_variant(answer) for stage in _stages(answer, visits, shown)
    )
    return Explained(
        answer=answer,
        stages=stages,
        last=_last(answer),
        fates=_fates(answer),
        notes=(*_notes(stages), *_rerouted(answer)),
    )


def _by_variant(answer: Answer) -> Iterator[list[_Visit]]:
    """Yield the visits by task and variant, in the query's order."""
    found: dict[tuple[int, str, str], list[_Visit]] = {}
    for path in answer.paths:
        left_s, after = answer.created_s, ""
        for depth, hop in enumerate(path):
            visit = _Visit(hop, left_s, after)
            found.setdefault((depth, hop.task, hop.variant), []).append(visit)
            left_s, after = hop.finished_s, hop.task
    # Paths are in branch order, so of two tasks at one depth the first child stands first.
    depths = sorted(found, key=lambda key: key[0])
    return (found[key] for key in depths)


def _stages(answer: Answer, visits: Sequence[_Visit], shown: int) -> Iterator[WaterfallStage]:
    batches: dict[tuple[str, float, float], list[_Visit]] = {}
    for visit in visits:
        hop = visit.hop
        batches.setdefault((hop.worker, hop.started_s, hop.finished_s), []).append(visit)
    runs = sorted(batches.values(), key=lambda run: (run[0].hop.finished_s, run[0].hop.worker))
    folded = [[run] for run in runs] if len(runs) <= shown else [runs]
    return (_stage(answer, group) for group in folded)


def _stage(answer: Answer, runs: Sequence[Sequence[_Visit]]) -> WaterfallStage:
    hops = [visit.hop for run in runs for visit in run]
    sizes = [hop.batch for hop in hops]
    # The item of the last batch that waited longest.
    shown = min(runs[-1], key=lambda visit: visit.hop.received_s)
    return WaterfallStage(
        task=hops[0].task,
        variant=hops[0].variant,
        workers=tuple(sorted({hop.worker for hop in hops})),
        epochs=tuple(sorted({hop.epoch for hop in hops})),
        batch=(min(sizes), max(sizes)),
        released=tuple(sorted(Counter(run[0].hop.released for run in runs).items())),
        batches=len(runs),
        branches=len(hops),
        first_done_ms=(runs[0][0].hop.finished_s - answer.created_s) * 1e3,
        steps=_steps(answer, shown),
    )


def _steps(answer: Answer, visit: _Visit) -> tuple[WaterfallStep, ...]:
    hop = visit.hop
    way = "Kafka" if visit.after else "Kafka, ingress"
    return (
        _step(answer, KAFKA, way, visit.left_s, hop.received_s),
        _step(answer, QUEUE, "queue", hop.received_s, hop.started_s),
        _step(answer, RUN, "run", hop.started_s, hop.finished_s),
    )


def _last(answer: Answer) -> WaterfallStep:
    ends = [path[-1].finished_s for path in answer.paths if path]
    name = "Kafka, egress" if ends else "until answered"
    return _step(answer, KAFKA, name, max(ends, default=answer.created_s), answer.answered_s)


def _step(answer: Answer, kind: str, name: str, from_s: float, to_s: float) -> WaterfallStep:
    return WaterfallStep(
        kind=kind,
        name=name,
        from_ms=(from_s - answer.created_s) * 1e3,
        to_ms=(to_s - answer.created_s) * 1e3,
        slack_ms=(answer.deadline_s - to_s) * 1e3,
    )


def _fates(answer: Answer) -> tuple[Fate, ...]:
    found: dict[tuple[str, str, str], Fate] = {}
    for end in answer.ends:
        key = (end.outcome, end.task, counted_as(end.reason_code, end.reason))
        known = found.get(key, Fate(end.outcome, end.task, end.reason, 0, end.reason_code))
        found[key] = replace(known, branches=known.branches + 1)
    return tuple(found.values())


CLOCK_TICK_MS = 1.0  # Kafka's time stamps are whole milliseconds


def _notes(stages: Iterable[WaterfallStage]) -> Iterator[str]:
    for stage in stages:
        for step in stage.steps:
            if step.took_ms < -CLOCK_TICK_MS:
                yield (
                    f"{variant_key(stage.task, stage.variant)} on {', '.join(stage.workers)}: "
                    f"{step.name} took {step.took_ms:.1f} ms, so the clocks of two "
                    "machines differ; `headrace doctor` measures the skew"
                )


def _rerouted(answer: Answer) -> Iterator[str]:
    """Yield a note for each variant whose items were rerouted, with the first reason."""
    found: dict[str, list[str]] = {}
    for path in answer.paths:
        for hop in path:
            if hop.rerouted:
                found.setdefault(hop.key, []).append(hop.rerouted)
    for variant, reasons in found.items():
        items = "1 item" if len(reasons) == 1 else f"{len(reasons)} items"
        yield f"{items} of {variant} rerouted: {reasons[0]}"


def _stage_row(stage: WaterfallStage) -> dict[str, Any]:
    return {
        "task": stage.task,
        "variant": stage.variant,
        "workers": list(stage.workers),
        "epochs": list(stage.epochs),
        "batch_min": stage.batch[0],
        "batch_max": stage.batch[1],
        "released": {reason: count for reason, count in stage.released if reason},
        "batches": stage.batches,
        "branches": stage.branches,
        "first_done_ms": round(stage.first_done_ms, 3),
        "steps": [_step_row(step) for step in stage.steps],
    }


def _step_row(step: WaterfallStep) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "name": step.name,
        "from_ms": round(step.from_ms, 3),
        "to_ms": round(step.to_ms, 3),
        "took_ms": round(step.took_ms, 3),
        "slack_ms": round(step.slack_ms, 3),
    }
