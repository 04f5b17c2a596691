"""Run configurations of a pipeline with knobs over samples: fan-out, scores, cached prefixes.

A configuration runs as in service: an item's output fans out to the children, and ``combine`` makes
the answer. The answer is compared with the sample's truth or with the answer of a reference
configuration; in the latter case the score is the agreement with the reference. A stage's outputs
are cached by the options of all stages up to it, so that configurations with the same options there
compute them once (Compass, Section 4.2).

The caller runs the operators; this module decides everything else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from control.policies.compass.search.prefix_cache import PrefixCache
from control.problem.space import Space
from operators.calls.device_faults import device_lost, raise_if_lost
from operators.calls.operator_outputs import listed
from operators.calls.own_values import own_values
from operators.calls.user_frames import error_sentence
from operators.join import Combine, Join, OpenQuery
from operators.record_size import record_size
from operators.scoring.scorer import parts_of
from operators.serving.fanout import outcome
from schemas.pipeline import Pipeline
from schemas.records import ANSWERED, Answer, Item, Origin, Value

# Runs a configuration's operator of a stage on values. Returns one output per value, with an
# exception for a value that failed, and the device seconds of all.
RunStage = Callable[[int, int, Sequence[Value]], tuple[Sequence[Any], float]]
Judge = Callable[[Any, Any], tuple[float, float]]  # (result, truth) to (parts right, parts)
Made = tuple[tuple[str, Item], ...]  # output of a stage for a sample: (child, item); "": ended


@dataclass(frozen=True, slots=True)
class Sample:
    """Number ``number`` of a sample set: a payload and its truth, which a reference replaces."""

    number: int
    payload: Value
    truth: Any = None


@dataclass(slots=True)
class StageCost:
    """Sums over samples: seconds as if nothing had been cached, output bytes, cached samples."""

    seconds: float = 0.0
    bytes: float = 0.0
    cached: int = 0


@dataclass(slots=True)
class Profile:
    """A configuration's scores by sample and its cost by stage; ``spent_s`` was really computed."""

    scores: list[float] = field(default_factory=list)
    stages: list[StageCost] = field(default_factory=list)
    input_bytes: float = 0.0
    spent_s: float = 0.0


class Profiler:
    """The configurations of one search space; outputs are kept in ``cache``.

    ``judge`` raises what the user's function raises. The answers of the configuration ``reference``
    count as true; without one, the truths of the samples.
    """

    def __init__(
        self, pipeline: Pipeline, space: Space, cache: PrefixCache, combine: Combine, judge: Judge,
        reference: int | None = None,
    ) -> None:  # fmt: skip
        self._pipeline, self._space, self._cache = pipeline, space, cache
        self._join, self._judge = Join(pipeline, combine, {}), judge
        self._reference = reference

    def profile(
        self, configuration: int, sample_set: str, samples: Sequence[Sample], run: RunStage
    ) -> Profile:
        """Return the profile of a configuration on samples of a set.

        Raises ``ValueError`` for a score that is not from 0 to 1.
        """
        found = Profile(stages=[StageCost() for _ in self._space.stages])
        for sample in samples:
            found.input_bytes += record_size(sample.payload)
            found.scores.append(self._scored(configuration, sample_set, sample, run, found))
        return found

    def _scored(
        self, configuration: int, sample_set: str, sample: Sample, run: RunStage, found: Profile
    ) -> float:
        answered = self._answered(configuration, sample_set, sample, run, found)
        truth = sample.truth
        if self._reference is not None:
            aside = Profile(stages=[StageCost() for _ in self._space.stages])
            true = self._answered(self._reference, sample_set, sample, run, aside)
            found.spent_s += aside.spent_s
            if true.outcome != ANSWERED:  # agreement with it means no answer either
                return float(answered.outcome == true.outcome)
            truth = true.result
        if answered.outcome != ANSWERED:
            return 0.0
        judged = self._judge(answered.result, truth)
        if judged[1] == 0:
            return 0.0
        right, of = parts_of(judged)
        return right / of

    def _answered(
        self, configuration: int, sample_set: str, sample: Sample, run: RunStage, found: Profile
    ) -> Answer:
        query = OpenQuery("profiled", Origin(0, sample.number), 0.0, float("inf"))
        made: dict[str, Made] = {"": ((self._space.stages[0].name, Item(value=sample.payload)),)}
        for stage, described in enumerate(self._space.stages):
            items = [item for child, item in made[described.parent] if child == described.name]
            key = (
                sample_set,
                sample.number,
                stage,
                int(self._space.prefixes[configuration, stage]),
            )
            made[described.name] = self._made(key, configuration, items, run, found)
        for pairs in made.values():
            for child, item in pairs:
                if not child:
                    query.branches[item.branch] = item
                    query.credit += item.credit
        return self._join.answer(query, 0.0)

    def _made(
        self,
        key: tuple[str, int, int, int],
        configuration: int,
        items: Sequence[Item],
        run: RunStage,
        found: Profile,
    ) -> Made:
        stage = key[2]
        cost = found.stages[stage]
        known = self._cache.get(key)
        if known is not None:
            made: Made = known[0]
            seconds = known[1]
            cost.cached += 1
        else:
            task = self._pipeline.task(self._space.stages[stage].name)
            outputs, seconds = run(stage, configuration, [i.value for i in items])
            found.spent_s += seconds
            made = tuple(
                pair
                for item, output in zip(items, outputs, strict=True)
                for pair in outcome(task, item, (), output)
            )
            self._cache.put(key, made, seconds, _size(made))
        cost.seconds += seconds
        cost.bytes += sum(record_size(item.value) for _, item in made)
        return made


def _size(made: Made) -> int:
    return 200 + sum(300 + record_size(item.value) for _, item in made)


def in_batches(
    predict: Callable[[list[Value]], Sequence[Any]], values: Sequence[Value], most: int
) -> list[Any]:
    """Return an operator's outputs for values, in batches of at most ``most``, as in service."""
    return [
        output
        for at in range(0, len(values), most)
        for output in block_outputs(predict, values[at : at + most])
    ]


def block_outputs(
    predict: Callable[[list[Value]], Sequence[Any]], values: Sequence[Value]
) -> list[Any]:
    """Return an operator's outputs for values; after an error each value runs alone.

    A value that raises gets its exception as output, as in service.
    """
    if not values:
        return []
    try:
        outputs = listed(predict(own_values(values)))
        raise_if_lost(outputs)
        if len(outputs) != len(values):
            raise ValueError(f"{len(outputs)} outputs for {len(values)} inputs")
        return outputs
    except BaseException as error:
        if device_lost(error):
            raise
        if len(values) > 1:
            return [output for value in values for output in block_outputs(predict, [value])]
        return [error if isinstance(error, Exception) else RuntimeError(error_sentence(error))]
